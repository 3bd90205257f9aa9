/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of facts, as the public interface gives them away.
 */
#ifndef LB_FACTS_H
#define LB_FACTS_H

#include "lb.h"

struct lb_facts {
	struct lb_fact *all;
	size_t n, cap;
	bool no_memory; /* some are missing */
};

void lb_facts_fini(struct lb_facts *facts);
/** @group, @key: static storage. A text is formatted and copied. */
__attribute__((format(printf, 5, 6))) void
lb_facts_text(struct lb_facts *facts, const char *group, size_t item,
	      const char *key, const char *format, ...);
/** @source: copied; NULL for none */
void lb_facts_number(struct lb_facts *facts, const char *group, size_t item,
		     const char *key, uint64_t number, const char *source);
void lb_facts_flag(struct lb_facts *facts, const char *group, size_t item,
		   const char *key, bool is_set);

#endif
