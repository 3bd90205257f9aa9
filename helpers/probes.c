/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe points: which instruction of a function is cheap to probe, and the
 * breakpoint itself (perf_event_open, PMU "uprobe").
 */
#include <elf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <capstone/capstone.h>

#include "probes.h"

#define PMU_TYPE   "/sys/bus/event_source/devices/uprobe/type"
#define PROBES_MAX 65536
#define LOOK_MAX   96	/* bytes of a function of unknown size */
#define FUNC_MAX   4096 /* bytes of a function that are decoded */

static int file_off(const struct lb_elf *elf, uint64_t vaddr, uint64_t *off_ret)
{
	const struct lb_segment *segments;
	size_t n = lb_elf_segments(elf, &segments);

	for (size_t i = 0; i < n; i++) {
		if (!(segments[i].flags & PF_X) || vaddr < segments[i].vaddr ||
		    vaddr - segments[i].vaddr >= segments[i].filesz)
			continue;
		*off_ret = vaddr - segments[i].vaddr + segments[i].off;
		return 0;
	}
	return -ERANGE;
}

/* Bytes of the file from @vaddr on, at most *@size. */
static const uint8_t *text_at(const struct lb_elf *elf, uint64_t vaddr,
			      uint64_t *size)
{
	const struct lb_segment *segments;
	size_t n = lb_elf_segments(elf, &segments);

	for (size_t i = 0; i < n; i++) {
		uint64_t d = vaddr - segments[i].vaddr;

		if (vaddr < segments[i].vaddr || d >= segments[i].filesz)
			continue;
		if (*size > segments[i].filesz - d)
			*size = segments[i].filesz - d;
		return lb_elf_vaddr_data(elf, vaddr, *size);
	}
	return NULL;
}

int lb_probes_add(struct lb_probes *probes, const struct lb_elf *elf,
		  uint32_t kind, const char *name, uint64_t vaddr)
{
	struct lb_probe probe = { .vaddr = vaddr, .kind = kind };
	uint64_t size = 16;
	const uint8_t *code = text_at(elf, vaddr, &size);

	if (!code || file_off(elf, vaddr, &probe.off))
		return -ERANGE;
	if (probes->n == probes->cap) {
		size_t cap = probes->cap ? 2 * probes->cap : 16;
		struct lb_probe *bigger = NULL;

		if (cap <= PROBES_MAX)
			bigger = realloc(probes->list, cap * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		probes->list = bigger;
		probes->cap = cap;
	}
	probe.emulated = lb_probe_is_emulated(code, size);
	snprintf(probe.name, sizeof(probe.name), "%s", name);
	probes->list[probes->n++] = probe;
	return 0;
}

void lb_probes_fini(struct lb_probes *probes)
{
	free(probes->list);
	memset(probes, 0, sizeof(*probes));
}

/*
 * Linux arch/x86/kernel/uprobes.c: jumps, conditional jumps and calls with a
 * distance, push of a register, nop of one byte; none with an operand size
 * prefix.
 */
bool lb_probe_is_emulated(const uint8_t *code, size_t size)
{
	if (!size)
		return false;
	switch (code[0]) {
	case 0x50 ... 0x57: /* push */
	case 0x70 ... 0x7f: /* jcc, short */
	case 0x90:	    /* nop */
	case 0xe8:	    /* call */
	case 0xe9:	    /* jmp */
	case 0xeb:	    /* jmp, short */
		return true;
	case 0x41: /* push r8 ... r15 */
		return size > 1 && code[1] >= 0x50 && code[1] <= 0x57;
	case 0x0f: /* jcc, near */
		return size > 1 && code[1] >= 0x80 && code[1] <= 0x8f;
	default:
		return false;
	}
}

/* Does a jump of the function lead to behind its begin, up to @vaddr? */
static bool is_jumped_over(csh handle, const uint8_t *code, uint64_t size,
			   uint64_t begin, uint64_t vaddr)
{
	cs_insn *insn = cs_malloc(handle);
	uint64_t at = begin;
	size_t left = size;
	bool found = !insn;

	while (!found && cs_disasm_iter(handle, &code, &left, &at, insn)) {
		const cs_x86 *x86 = &insn->detail->x86;

		if (!cs_insn_group(handle, insn, CS_GRP_JUMP) ||
		    x86->op_count != 1)
			continue;
		if (x86->operands[0].type != X86_OP_IMM)
			continue;

		uint64_t target = x86->operands[0].imm;

		found = target > begin && target <= vaddr;
	}
	if (insn)
		cs_free(insn, 1);
	/* what could not be decoded may jump anywhere */
	return found || left;
}

uint64_t lb_probe_cheap(const struct lb_elf *elf, uint64_t vaddr, uint64_t size)
{
	uint64_t look = size && size < FUNC_MAX ? size : LOOK_MAX;
	const uint8_t *begin = text_at(elf, vaddr, &look), *code = begin;
	uint64_t at = vaddr, found = vaddr;
	size_t left = look;
	csh handle;

	if (!begin || lb_probe_is_emulated(begin, look) ||
	    cs_open(CS_ARCH_X86, CS_MODE_64, &handle))
		return vaddr;
	cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);

	cs_insn *insn = cs_malloc(handle);

	while (insn && cs_disasm_iter(handle, &code, &left, &at, insn)) {
		if (lb_probe_is_emulated(insn->bytes, insn->size)) {
			found = insn->address;
			break;
		}
		if (cs_insn_group(handle, insn, CS_GRP_JUMP) ||
		    cs_insn_group(handle, insn, CS_GRP_CALL) ||
		    cs_insn_group(handle, insn, CS_GRP_RET) ||
		    cs_insn_group(handle, insn, CS_GRP_INT))
			break;
	}
	if (insn)
		cs_free(insn, 1);
	/* a function of unknown size may jump back to there from anywhere */
	if (found != vaddr &&
	    (!size || size >= FUNC_MAX ||
	     is_jumped_over(handle, begin, look, vaddr, found)))
		found = vaddr;
	cs_close(&handle);
	return found;
}

static int pmu_type(void)
{
	FILE *file = fopen(PMU_TYPE, "re");
	int type = -ENODEV;

	if (!file)
		return -errno;
	if (fscanf(file, "%d", &type) != 1)
		type = -ENODEV;
	fclose(file);
	return type;
}

int lb_probe_attach(const char *path, uint64_t off, pid_t pid, int prog_fd,
		    int *fd_ret)
{
	int type = pmu_type();

	if (type < 0)
		return type;

	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = type,
		.sample_period = 1,
		.wakeup_events = 1,
		.config1 = (uint64_t)(uintptr_t)path,
		.config2 = off,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1,
			      PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, prog_fd) ||
	    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)) {
		int err = -errno;

		close(fd);
		return err;
	}
	*fd_ret = fd;
	return 0;
}
