/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel and our privileges allow. A feature is tried, for a release
 * number says little: distributions take features out and back into old ones.
 * A trial loads a program of two instructions or opens a timer that never
 * fires, and gives it back at once.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "buf.h"
#include "kernel.h"

#define GROUP "kernel", 0

/* r0 = 0; exit */
static const struct bpf_insn insns[] = {
	{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
	{ .code = BPF_JMP | BPF_EXIT },
};

/* "yes", or why not. */
static void add_trial(struct lb_facts *facts, const char *key, int err)
{
	lb_facts_text(facts, GROUP, key, "%s", err ? strerror(-err) : "yes");
}

static int try_program(enum bpf_prog_type type)
{
	int fd = bpf_prog_load(type, NULL, "GPL", insns,
			       sizeof(insns) / sizeof(insns[0]), NULL);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* The timer of lua-stacks: the clock of one CPU. */
static int try_timer(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000,
		.disabled = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1,
			      PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* The first line of a small file; false when it cannot be read. */
static bool read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	bool got = fgets(line, (int)size, file);

	fclose(file);
	if (got)
		line[strcspn(line, "\n")] = 0;
	return got;
}

static const struct {
	const char *key;
	const char *path;
} settings[] = {
	{ "perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid" },
	{ "perf_event_max_sample_rate",
	  "/proc/sys/kernel/perf_event_max_sample_rate" },
	{ "unprivileged_bpf_disabled",
	  "/proc/sys/kernel/unprivileged_bpf_disabled" },
	{ "kptr_restrict", "/proc/sys/kernel/kptr_restrict" },
	{ "ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope" },
};

static void add_settings(struct lb_facts *facts)
{
	char line[64];

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (read_line(settings[i].path, line, sizeof(line)))
			lb_facts_text(facts, GROUP, settings[i].key, "%s",
				      line);
}

/* "none [integrity] confidentiality": the word in brackets holds. */
static void add_lockdown(struct lb_facts *facts)
{
	char line[128];

	if (!read_line("/sys/kernel/security/lockdown", line, sizeof(line)))
		return;
	char *word = strchr(line, '[');

	if (!word)
		return;
	word[strcspn(word, "]")] = 0;
	lb_facts_text(facts, GROUP, "lockdown", "%s", word + 1);
}

static const struct {
	const char *name;
	unsigned int number;
} capabilities[] = {
	{ "CAP_SYS_ADMIN", CAP_SYS_ADMIN },
	{ "CAP_SYS_PTRACE", CAP_SYS_PTRACE },
	{ "CAP_BPF", CAP_BPF },
	{ "CAP_PERFMON", CAP_PERFMON },
	{ "CAP_SYS_RESOURCE", CAP_SYS_RESOURCE },
};

/* Of the capabilities that matter here, those in effect. */
static void add_capabilities(struct lb_facts *facts)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256], names[160] = "";
	uint64_t mask = 0;

	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %" SCNx64, &mask) == 1)
			break;
	fclose(file);
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]);
	     i++) {
		size_t len = strlen(names);

		if (mask & UINT64_C(1) << capabilities[i].number)
			snprintf(names + len, sizeof(names) - len, "%s%s",
				 len ? " " : "", capabilities[i].name);
	}
	lb_facts_text(facts, GROUP, "capabilities", "%s",
		      *names ? names : "none");
}

void lb_kernel_facts(struct lb_facts *facts)
{
	struct utsname name;

	if (!uname(&name)) {
		lb_facts_text(facts, GROUP, "release", "%s", name.release);
		lb_facts_text(facts, GROUP, "machine", "%s", name.machine);
	}
	lb_facts_number(facts, GROUP, "user", geteuid(), NULL);
	add_capabilities(facts);
	add_trial(facts, "bpf_timer", try_program(BPF_PROG_TYPE_PERF_EVENT));
	add_trial(facts, "bpf_probe", try_program(BPF_PROG_TYPE_KPROBE));
	add_trial(facts, "bpf_tracepoint",
		  try_program(BPF_PROG_TYPE_RAW_TRACEPOINT));
	add_trial(facts, "timer", try_timer());
	add_trial(facts, "uprobes",
		  access("/sys/bus/event_source/devices/uprobe/type", R_OK)
			  ? -errno
			  : 0);
	add_trial(facts, "btf",
		  access("/sys/kernel/btf/vmlinux", R_OK) ? -errno : 0);
	add_settings(facts);
	add_lockdown(facts);
}
