/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C functions that the hosts of the tests give to Lua. Each is a frame with a
 * name of its own in the expected stacks, so none may be inlined, cloned under
 * another name, or left by a tail call: they use what they called.
 */
#ifndef LB_HOST_API_H
#define LB_HOST_API_H

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noipa))

static volatile uint64_t spin_sink;

/* Work of its own: no call, about a nanosecond a round. */
static KEEP void spin(lua_Integer n)
{
	for (lua_Integer i = 0; i < n; i++)
		spin_sink += (uint64_t)i;
}

/* c_spin(n): C code that calls nothing of Lua while it works. */
static KEEP int c_spin(lua_State *L)
{
	spin(luaL_checkinteger(L, 1));
	spin_sink++;
	return 0;
}

/* c_call(f, n): f(n) by lua_call; an error passes through this frame. */
static KEEP int c_call(lua_State *L)
{
	lua_settop(L, 2);
	lua_call(L, 1, 1);
	spin_sink++;
	return 1;
}

/* c_pcall(f, n): f(n) by lua_pcall without a handler. */
static KEEP int c_pcall(lua_State *L)
{
	lua_settop(L, 2);
	int status = lua_pcall(L, 1, 1, 0);

	lua_pushinteger(L, status);
	spin_sink++;
	return 1;
}

/* c_xpcall(f, n, handler) */
static KEEP int c_xpcall(lua_State *L)
{
	lua_settop(L, 3);
	lua_insert(L, 1); /* handler, f, n */
	int status = lua_pcall(L, 1, 1, 1);

	lua_pushinteger(L, status);
	spin_sink++;
	return 1;
}

/* The function of c_cpcall, called with the argument as light userdata. */
static KEEP int cpcall_body(lua_State *L)
{
	lua_Integer n = *(lua_Integer *)lua_touserdata(L, 1);

	lua_getfield(L, LUA_REGISTRYINDEX, "lb.cpcall");
	lua_pushinteger(L, n);
	lua_call(L, 1, 0);
	spin_sink++;
	return 0;
}

/* c_cpcall(f, n): f(n) by lua_call inside lua_cpcall. */
static KEEP int c_cpcall(lua_State *L)
{
	lua_Integer n = luaL_checkinteger(L, 2);

	lua_pushvalue(L, 1);
	lua_setfield(L, LUA_REGISTRYINDEX, "lb.cpcall");
	lua_pushinteger(L, lua_cpcall(L, cpcall_body, &n));
	spin_sink++;
	return 1;
}

/* c_resume(f, n): run f(n) in a new coroutine until it ends. */
static KEEP int c_resume(lua_State *L)
{
	lua_State *co = lua_newthread(L);
	int status;

	lua_pushvalue(L, 1);
	lua_pushvalue(L, 2);
	lua_xmove(L, co, 2);
	status = lua_resume(co, 1);
	while (status == LUA_YIELD) {
		lua_settop(co, 0);
		status = lua_resume(co, 0);
	}
	lua_pushinteger(L, status);
	spin_sink++;
	return 1;
}

/* c_error(message): throw by lua_error. */
static KEEP int c_error(lua_State *L)
{
	lua_settop(L, 1);
	return lua_error(L) + (int)spin_sink;
}

/* c_clock(): CPU seconds of this thread. */
static KEEP int c_clock(lua_State *L)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	lua_pushnumber(L, (lua_Number)ts.tv_sec + (lua_Number)ts.tv_nsec / 1e9);
	spin_sink++;
	return 1;
}

static const luaL_Reg host_functions[] = {
	{ "c_spin", c_spin },	  { "c_call", c_call },
	{ "c_pcall", c_pcall },	  { "c_xpcall", c_xpcall },
	{ "c_cpcall", c_cpcall }, { "c_resume", c_resume },
	{ "c_error", c_error },	  { "c_clock", c_clock },
	{ NULL, NULL },
};

/* A VM with the libraries and the functions above; JIT on or off. */
static KEEP lua_State *host_new_vm(int joff)
{
	lua_State *L = luaL_newstate();

	if (!L) {
		fprintf(stderr, "host: no memory for a VM\n");
		exit(1);
	}
	luaL_openlibs(L);
	for (const luaL_Reg *f = host_functions; f->name; f++)
		lua_register(L, f->name, f->func);
	luaJIT_setmode(L, 0,
		       LUAJIT_MODE_ENGINE |
			       (joff ? LUAJIT_MODE_OFF : LUAJIT_MODE_ON));
	return L;
}

/* Load and run a script under lua_pcall; the frame below main or a thread. */
static KEEP int host_run(lua_State *L, const char *script)
{
	int status = luaL_loadfile(L, script);

	if (!status)
		status = lua_pcall(L, 0, 0, 0);
	if (status)
		fprintf(stderr, "host: %s\n", lua_tostring(L, -1));
	return status;
}

#endif
