/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that changes while it is profiled. It computes natively and prints
 * "ready"; SIGUSR1 makes it take one step, by its first argument:
 *   dlopen  load LuaJIT, then run Lua code in this thread
 *   exec    become the program named by the arguments that follow
 *   fork    fork a child that becomes that program; compute on
 * Ends after 120 s.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void ask(int number)
{
	(void)number;
	asked = 1;
}

__attribute__((noipa)) static double late_native(void)
{
	double x = 0;

	for (int i = 1; i < 200000; i++)
		x += 1.0 / i;
	return x;
}

static int run_lua(void)
{
	void *lib = dlopen("libluajit-5.1.so.2", RTLD_NOW | RTLD_GLOBAL);

	if (!lib) {
		fprintf(stderr, "late: %s\n", dlerror());
		return 1;
	}
	void *(*new_state)(void) = dlsym(lib, "luaL_newstate");
	int (*load)(void *, const char *) = dlsym(lib, "luaL_loadstring");
	int (*call)(void *, int, int, int) = dlsym(lib, "lua_pcall");
	void *l = new_state();

	return load(l, "function late_lua()\n"
		       "  local s = 0\n"
		       "  for i = 1, 1e6 do s = s + i % 7 end\n"
		       "  return s\n"
		       "end\n"
		       "while true do late_lua() end") ||
	       call(l, 0, 0, 0);
}

int main(int argc, char **argv)
{
	double sum = 0;

	if (argc < 2)
		return 2;
	signal(SIGUSR1, ask);
	alarm(120);
	puts("ready");
	fflush(stdout);
	for (;;) {
		sum += late_native();
		if (!asked)
			continue;
		asked = 0;
		if (!strcmp(argv[1], "dlopen"))
			return run_lua();
		if (!strcmp(argv[1], "exec") || fork() == 0) {
			alarm(120);
			execv(argv[2], argv + 2);
			perror("late: exec");
			return 1;
		}
	}
	return sum < 0;
}
