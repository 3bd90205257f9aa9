/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readable names of C++ and (legacy) Rust symbols.
 *
 * The work is done by __cxa_demangle(), which has no bound on its output: a
 * mangled name may refer back to parts of itself, each part to earlier ones,
 * and 300 bytes can stand for a gigabyte. So the expansions are counted first.
 * And it does not come back from some names that are malformed: libstdc++ 12
 * loops on _Z1fIXsr1aBCE, a qualified name in an expression ("sr") with nothing
 * good behind it. Names that have "sr" are left as they are.
 * Specification: Itanium C++ ABI section 5.1.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "demangle.h"
#include "escape.h"

#define INPUT_MAX  1024	      /* bytes that are demangled */
#define REFS_MAX   128	      /* references back in one name */
#define COPIES_MAX (1U << 14) /* parts of the name in its text */
#define PACKS_MAX  2	      /* expansions of parameter packs */

/* libstdc++, cxxabi.h */
extern char *__cxa_demangle(const char *mangled, char *buf, size_t *size,
			    int *status);

struct ref { /* S_, S0_ ... T_, T0_ ... */
	size_t pos;
	size_t size;
	size_t first; /* not before the same reference occurs first */
};

static size_t ref_size(const char *text)
{
	size_t n = 1;

	if (*text != 'S' && *text != 'T')
		return 0;
	while (isdigit((unsigned char)text[n]) ||
	       isupper((unsigned char)text[n]))
		n++;
	return text[n] == '_' ? n + 1 : 0;
}

/* aS, lS, rS and DT are words of their own, and may stand before a number. */
static bool may_be_word(const char *text, size_t pos)
{
	return pos && strchr("alrD", text[pos - 1]);
}

/* Set @ref->first if the same reference occurred before. */
static void find_first(const char *text, const struct ref *refs, size_t n,
		       struct ref *ref)
{
	for (size_t i = 0; i < n; i++) {
		if (refs[i].size == ref->size && refs[i].first != SIZE_MAX &&
		    !memcmp(text + refs[i].pos, text + ref->pos, ref->size)) {
			ref->first = refs[i].first;
			return;
		}
	}
}

/*
 * All that looks like a reference, in identifiers too. An identifier is a
 * number and that many characters. Without the whole grammar we do not know
 * what else a number may be, so @hidden counts the characters that could belong
 * to an identifier: what stands there is no proof that the reference occurs.
 * Return: how many, SIZE_MAX for too many.
 */
static size_t find_refs(const char *text, struct ref *refs)
{
	size_t n = 0, hidden = 0, pos = 0;

	while (text[pos]) {
		struct ref ref = { .pos = pos,
				   .size = ref_size(text + pos),
				   .first = SIZE_MAX };
		bool sure = !hidden && !may_be_word(text, pos);
		size_t step = 1;

		if (ref.size) {
			if (n == REFS_MAX)
				return SIZE_MAX;
			/* T_ may mean something else at every place */
			if (text[pos] == 'S')
				find_first(text, refs, n, &ref);
			if (sure && ref.first == SIZE_MAX && text[pos] == 'S')
				ref.first = pos;
			refs[n++] = ref;
			if (sure)
				step = ref.size;
		} else if (isdigit((unsigned char)text[pos])) {
			size_t number = 0;

			step = 0;
			while (isdigit((unsigned char)text[pos + step])) {
				number = number * 10 +
					 (size_t)(text[pos + step++] - '0');
				if (number > INPUT_MAX)
					number = INPUT_MAX;
			}
			if (number + step > hidden)
				hidden = number + step;
		}
		pos += step;
		hidden -= hidden < step ? hidden : step;
	}
	for (size_t i = 0; i < n; i++) {
		if (refs[i].first == SIZE_MAX)
			refs[i].first = refs[i].pos;
	}
	return n;
}

/*
 * Upper bound for the number of parts in the text. A part that a reference
 * stands for ends before the reference first occurs. So the reference at pos is
 * repeated at most by all those that first occur behind it.
 */
static bool is_bounded(const char *text)
{
	struct ref refs[REFS_MAX];
	uint64_t copies[REFS_MAX], total = 1;
	size_t n = find_refs(text, refs);
	unsigned int packs = 0;

	if (n == SIZE_MAX || strstr(text, "sr"))
		return false;
	for (size_t i = n; i-- > 0;) {
		copies[i] = 1;
		for (size_t k = i + 1; k < n; k++) {
			if (refs[k].first > refs[i].pos)
				copies[i] += copies[k];
		}
		total += copies[i];
		if (total > COPIES_MAX)
			return false;
	}
	for (const char *p = text; (p = strstr(p, "Dp")); p += 2)
		packs++;
	return packs <= PACKS_MAX;
}

/* Does @text end in 17h and 16 hex digits, as legacy Rust symbols do? */
static bool is_rust(const char *text, size_t size)
{
	const char *hash = text + size - 20;

	if (size < 24 || strncmp(text, "_ZN", 3) || strncmp(hash, "17h", 3) ||
	    text[size - 1] != 'E')
		return false;
	for (size_t i = 3; i < 19; i++) {
		if (!isxdigit((unsigned char)hash[i]))
			return false;
	}
	return true;
}

struct rust_word {
	const char *from;
	const char *to; /* not longer */
};

/* In place: without the hash, with the characters that $..$ stands for. */
static void clean_rust(char *text)
{
	static const struct rust_word words[] = {
		{ "$LT$", "<" },  { "$GT$", ">" },  { "$RF$", "&" },
		{ "$BP$", "*" },  { "$LP$", "(" },  { "$RP$", ")" },
		{ "$C$", "," },	  { "$SP$", "@" },  { "$u20$", " " },
		{ "$u27$", "'" }, { "$u5b$", "[" }, { "$u5d$", "]" },
		{ "$u7b$", "{" }, { "$u7d$", "}" }, { "$u7e$", "~" },
		{ "..", "::" },
	};
	size_t n = strlen(text);
	char *out = text;

	if (n > 19 && !strncmp(text + n - 19, "::h", 3))
		text[n - 19] = '\0';
	/* a component that begins with $ has _ before it */
	for (const char *in = text; *in;) {
		const struct rust_word *word = NULL;

		if (*in == '_' && in[1] == '$' && (in == text || in[-1] == ':'))
			in++;
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
			if (!strncmp(in, words[i].from, strlen(words[i].from)))
				word = &words[i];
		}
		if (word) {
			memcpy(out, word->to, strlen(word->to));
			out += strlen(word->to);
			in += strlen(word->from);
		} else {
			*out++ = *in++;
		}
	}
	*out = '\0';
}

static char *escaped(const char *text, size_t size)
{
	char *out;

	if (size > SIZE_MAX / 4 - 1)
		return NULL;
	out = malloc(4 * size + 1);
	if (out)
		lb_escape(text, size, out, 4 * size + 1);
	return out;
}

char *lb_demangle(const char *symbol)
{
	size_t size = strlen(symbol);
	char *text = NULL, *out;
	int status;

	if (!strncmp(symbol, "_Z", 2) && size <= INPUT_MAX &&
	    is_bounded(symbol))
		text = __cxa_demangle(symbol, NULL, NULL, &status);
	if (!text)
		return escaped(symbol, size);
	if (is_rust(symbol, size))
		clean_rust(text);
	out = escaped(text, strlen(text));
	free(text);
	return out;
}
