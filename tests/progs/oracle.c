/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `oracle [-joff] CHAINS SCRIPT`: a host that tells, in every sample, what its
 * Lua stack was at that very instant.
 *
 * The script calls mark() from as many situations as it can think of. mark()
 * reads its own stack by the debug API (lua_getstack, lua_getinfo), the way
 * debug.traceback does, hashes the text to 16 bits, and works for a fraction
 * of a millisecond in hi_XX -> lo_YY, two functions whose names are the hash.
 * A sampler that walks the stack from outside must then find a chain of
 * functions with that hash. Each new chain is also written to the file CHAINS
 * as `HASH leaf<...<root`, so that the whole text can be compared.
 *
 * The debug API sees one coroutine. Those below it are told by enter() and
 * leave(), which a resumer calls around each resume.
 */
#include "host_api.h"

#define RESUMERS_MAX 64
#define TEXT_MAX     16384

static lua_State *resumers[RESUMERS_MAX];
static int n_resumers;
static FILE *chains;
static unsigned char seen[65536];

static KEEP void work(void)
{
	spin(250000);
	spin_sink++;
}

#define LO(n)                          \
	static KEEP void lo_##n(void)  \
	{                              \
		work();                \
		spin_sink += 0x##n##U; \
	}
#define HI(n)                                     \
	static KEEP void hi_##n(void (*lo)(void)) \
	{                                         \
		lo();                             \
		spin_sink += 0x##n##U;            \
	}
/* clang-format off */
#define ROW(m, x)                                                         \
	m(x##0) m(x##1) m(x##2) m(x##3) m(x##4) m(x##5) m(x##6) m(x##7) \
	m(x##8) m(x##9) m(x##a) m(x##b) m(x##c) m(x##d) m(x##e) m(x##f)
#define ALL(m)                                                        \
	ROW(m, 0) ROW(m, 1) ROW(m, 2) ROW(m, 3) ROW(m, 4) ROW(m, 5) \
	ROW(m, 6) ROW(m, 7) ROW(m, 8) ROW(m, 9) ROW(m, a) ROW(m, b) \
	ROW(m, c) ROW(m, d) ROW(m, e) ROW(m, f)
/* clang-format on */

ALL(LO)
ALL(HI)

#define LO_NAME(n) lo_##n,
#define HI_NAME(n) hi_##n,

static void (*const lo_table[])(void) = { ALL(LO_NAME) };
static void (*const hi_table[])(void (*)(void)) = { ALL(HI_NAME) };

/* One level: `chunk:line` where it is defined, or C. */
static int level_text(lua_State *L, lua_Debug *ar, char *out, size_t size)
{
	lua_getinfo(L, "S", ar);
	if (*ar->what == 'C')
		return snprintf(out, size, "C<");
	return snprintf(out, size, "%s:%d<", ar->source + 1, ar->linedefined);
}

static size_t thread_text(lua_State *L, char *out, size_t size)
{
	size_t len = 0;
	lua_Debug ar;

	for (int level = 0; lua_getstack(L, level, &ar); level++) {
		int n = level_text(L, &ar, out + len, size - len);

		if (n < 0 || (size_t)n >= size - len) {
			fprintf(stderr, "oracle: chain too long\n");
			exit(1);
		}
		len += (size_t)n;
	}
	return len;
}

static unsigned int hash_text(const char *text)
{
	uint32_t hash = 2166136261U; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619U;
	return (hash ^ hash >> 16) & 0xffff;
}

/* mark(): be found with this stack. */
static KEEP int mark(lua_State *L)
{
	static char text[TEXT_MAX];
	size_t len = thread_text(L, text, sizeof(text));

	for (int i = n_resumers - 1; i >= 0; i--)
		len += thread_text(resumers[i], text + len, sizeof(text) - len);
	unsigned int hash = hash_text(text);

	if (!seen[hash]) {
		seen[hash] = 1;
		fprintf(chains, "%04x %s\n", hash, text);
		fflush(chains);
	}
	hi_table[hash >> 8](lo_table[hash & 0xff]);
	spin_sink++;
	return 0;
}

/* enter(): the caller is about to resume a coroutine. */
static KEEP int enter(lua_State *L)
{
	if (n_resumers == RESUMERS_MAX)
		return luaL_error(L, "too many resumers");
	resumers[n_resumers++] = L;
	return 0;
}

/* leave(): it is back. */
static KEEP int leave(lua_State *L)
{
	(void)L;
	n_resumers--;
	return 0;
}

int main(int argc, char **argv)
{
	int joff = argc > 1 && !strcmp(argv[1], "-joff");

	if (argc != 3 + joff) {
		fprintf(stderr, "usage: oracle [-joff] CHAINS SCRIPT\n");
		return 2;
	}
	chains = fopen(argv[1 + joff], "w");
	if (!chains) {
		fprintf(stderr, "oracle: cannot write %s\n", argv[1 + joff]);
		return 1;
	}
	lua_State *L = host_new_vm(joff);

	lua_register(L, "mark", mark);
	lua_register(L, "enter", enter);
	lua_register(L, "leave", leave);
	int status = host_run(L, argv[2 + joff]);

	lua_close(L);
	return status != 0;
}
