/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several VMs in one thread: Lua of VM A calls C that runs VM B, whose Lua
 * calls C that runs VM C, or with -reenter VM A again, then C: `nested [-joff]
 * [-reenter]`. The scripts are nested_a.lua, nested_b.lua and nested_c.lua of
 * the current folder.
 */
#include "host_api.h"

static lua_State *vm_a, *vm_b, *vm_c;

static KEEP int call_global(lua_State *L, const char *name, lua_Integer n)
{
	lua_getglobal(L, name);
	lua_pushinteger(L, n);
	lua_call(L, 1, 1);
	lua_pop(L, 1);
	return (int)spin_sink;
}

/* in_b(n), in_c(n), in_a(n): work(n) of another VM */
static KEEP int in_b(lua_State *L)
{
	spin_sink +=
		(uint64_t)call_global(vm_b, "work", luaL_checkinteger(L, 1));
	return 0;
}

static KEEP int in_c(lua_State *L)
{
	spin_sink +=
		(uint64_t)call_global(vm_c, "work", luaL_checkinteger(L, 1));
	return 0;
}

static KEEP int in_a(lua_State *L)
{
	spin_sink +=
		(uint64_t)call_global(vm_a, "work", luaL_checkinteger(L, 1));
	return 0;
}

static lua_State *new_vm(int joff)
{
	lua_State *L = host_new_vm(joff);

	lua_register(L, "in_a", in_a);
	lua_register(L, "in_b", in_b);
	lua_register(L, "in_c", in_c);
	return L;
}

int main(int argc, char **argv)
{
	int joff = 0, reenter = 0;

	for (int i = 1; i < argc; i++) {
		joff |= !strcmp(argv[i], "-joff");
		reenter |= !strcmp(argv[i], "-reenter");
	}
	vm_a = new_vm(joff);
	vm_b = new_vm(joff);
	vm_c = new_vm(joff);
	lua_pushboolean(vm_b, reenter);
	lua_setglobal(vm_b, "REENTER");
	if (host_run(vm_b, "nested_b.lua") || host_run(vm_c, "nested_c.lua"))
		return 1;
	return host_run(vm_a, "nested_a.lua") != 0;
}
