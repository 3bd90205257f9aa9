/* SPDX-License-Identifier: Apache-2.0 */
/* A list of facts. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"

void lb_facts_fini(struct lb_facts *facts)
{
	for (size_t i = 0; i < facts->n; i++)
		free((char *)facts->all[i].text);
	free(facts->all);
	memset(facts, 0, sizeof(*facts));
}

/* Takes @text, which may be NULL for want of memory. */
static void add(struct lb_facts *facts, const struct lb_fact *fact, char *text)
{
	if (text && facts->n == facts->cap) {
		size_t cap = facts->cap ? 2 * facts->cap : 64;
		void *bigger = realloc(facts->all, cap * sizeof(*facts->all));

		if (bigger) {
			facts->all = bigger;
			facts->cap = cap;
		}
	}
	if (!text || facts->n == facts->cap) {
		facts->no_memory = true;
		free(text);
		return;
	}
	facts->all[facts->n] = *fact;
	facts->all[facts->n++].text = text;
}

void lb_facts_text(struct lb_facts *facts, const char *group, size_t item,
		   const char *key, const char *format, ...)
{
	const struct lb_fact fact = { .group = group,
				      .item = (uint32_t)item,
				      .key = key,
				      .kind = LB_FACT_TEXT };
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	add(facts, &fact, text);
}

void lb_facts_number(struct lb_facts *facts, const char *group, size_t item,
		     const char *key, uint64_t number, const char *source)
{
	const struct lb_fact fact = { .group = group,
				      .item = (uint32_t)item,
				      .key = key,
				      .kind = LB_FACT_NUMBER,
				      .number = number };

	add(facts, &fact, strdup(source ? source : ""));
}

void lb_facts_flag(struct lb_facts *facts, const char *group, size_t item,
		   const char *key, bool is_set)
{
	const struct lb_fact fact = { .group = group,
				      .item = (uint32_t)item,
				      .key = key,
				      .kind = LB_FACT_FLAG,
				      .number = is_set };

	add(facts, &fact, strdup(""));
}
