/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workload of scripts/demo: a C program that embeds LuaJIT. Lua calls the
 * C functions of the table `host`, and host.each_order() calls back into Lua.
 *
 * usage: demo_host FILE.lua [SECONDS]
 *
 * Calls the global function serve() of the file over and over; says "ready"
 * after the first call and ends after SECONDS (120).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define NOINLINE __attribute__((noinline))

static NOINLINE uint32_t host_checksum_bytes(const char *s, size_t len)
{
	uint32_t a = 1, b = 0;

	for (size_t i = 0; i < len; i++) {
		a = (a + (unsigned char)s[i]) % 65521;
		b = (b + a) % 65521;
	}
	return b << 16 | a;
}

/* host.checksum(text) -> number */
static int host_checksum(lua_State *L)
{
	size_t len;
	const char *s = luaL_checklstring(L, 1, &len);
	uint32_t sum = 0;

	for (int round = 0; round < 80; round++)
		sum ^= host_checksum_bytes(s, len);
	lua_pushnumber(L, sum);
	return 1;
}

/* host.each_order(n, fn): call fn(i) for i = 1 to n */
static int host_each_order(lua_State *L)
{
	int n = (int)luaL_checkinteger(L, 1);

	luaL_checktype(L, 2, LUA_TFUNCTION);
	for (int i = 1; i <= n; i++) {
		lua_pushvalue(L, 2);
		lua_pushinteger(L, i);
		lua_call(L, 1, 0);
	}
	return 0;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static NOINLINE int host_serve(lua_State *L)
{
	lua_getglobal(L, "serve");
	if (!lua_pcall(L, 0, 0, 0))
		return 0;
	fprintf(stderr, "demo_host: %s\n", lua_tostring(L, -1));
	return 1;
}

static NOINLINE int host_serve_until(lua_State *L, double end)
{
	while (now() < end) {
		if (host_serve(L))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const luaL_Reg host[] = {
		{ "checksum", host_checksum },
		{ "each_order", host_each_order },
		{ NULL, NULL },
	};
	double seconds = argc > 2 ? atof(argv[2]) : 120;
	lua_State *L = luaL_newstate();
	int status;

	if (argc < 2 || !L) {
		fprintf(stderr, "usage: demo_host FILE.lua [SECONDS]\n");
		return 2;
	}
	luaL_openlibs(L);
	luaL_register(L, "host", host);
	lua_settop(L, 0);
	if (luaL_dofile(L, argv[1])) {
		fprintf(stderr, "demo_host: %s\n", lua_tostring(L, -1));
		return 1;
	}
	if (host_serve(L))
		return 1;
	printf("ready\n");
	fflush(stdout);
	status = host_serve_until(L, now() + seconds);
	lua_close(L);
	return status;
}
