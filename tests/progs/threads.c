/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three threads, each with a VM of its own and another entry function, so that
 * a stack mixed from two threads shows: `threads [-joff] SCRIPT`. The script
 * learns from the global THREAD (1, 2, 3) which part it plays.
 */
#include "host_api.h"

#include <pthread.h>

static const char *script;
static int joff;

static KEEP int run_thread(int number)
{
	lua_State *L = host_new_vm(joff);

	lua_pushinteger(L, number);
	lua_setglobal(L, "THREAD");
	int status = host_run(L, script);

	lua_close(L);
	return status;
}

static KEEP void *first_thread(void *arg)
{
	spin_sink += (uint64_t)run_thread(1);
	return arg;
}

static KEEP void *second_thread(void *arg)
{
	spin_sink += (uint64_t)run_thread(2);
	return arg;
}

static KEEP void *third_thread(void *arg)
{
	spin_sink += (uint64_t)run_thread(3);
	return arg;
}

int main(int argc, char **argv)
{
	void *(*const entries[])(void *) = { first_thread, second_thread,
					     third_thread };
	pthread_t threads[3];

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-joff"))
			joff = 1;
		else
			script = argv[i];
	}
	if (!script) {
		fprintf(stderr, "usage: threads [-joff] SCRIPT\n");
		return 2;
	}
	for (int i = 0; i < 3; i++) {
		if (pthread_create(&threads[i], NULL, entries[i], NULL)) {
			fprintf(stderr, "threads: cannot start a thread\n");
			return 1;
		}
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
