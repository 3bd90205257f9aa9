/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that runs one script: `host [-joff] [-alarm] SCRIPT`. With
 * -alarm, a SIGALRM every millisecond runs a handler on top of whatever the
 * script does; the handler works for a few hundred microseconds.
 */
#include "host_api.h"

#include <signal.h>
#include <sys/time.h>

static volatile uint64_t alarm_sink;

static KEEP void alarm_work(int n)
{
	for (int i = 0; i < n; i++)
		alarm_sink += (uint64_t)i;
}

static KEEP void on_alarm(int sig)
{
	alarm_work(300000);
	alarm_sink += (uint64_t)sig;
}

static void start_alarm(void)
{
	struct sigaction action = { .sa_handler = on_alarm,
				    .sa_flags = SA_RESTART };
	struct itimerval every = { .it_interval = { 0, 1000 },
				   .it_value = { 0, 1000 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

int main(int argc, char **argv)
{
	int joff = 0, alarms = 0;
	const char *script = NULL;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-joff"))
			joff = 1;
		else if (!strcmp(argv[i], "-alarm"))
			alarms = 1;
		else
			script = argv[i];
	}
	if (!script) {
		fprintf(stderr, "usage: host [-joff] [-alarm] SCRIPT\n");
		return 2;
	}
	lua_State *L = host_new_vm(joff);

	if (alarms)
		start_alarm();
	int status = host_run(L, script);

	lua_close(L);
	return status != 0;
}
