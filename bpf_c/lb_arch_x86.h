/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x86-64: registers as a perf event and a signal frame hold them.
 * Order of struct lb_regs: the kernel's struct pt_regs (user-visible ABI);
 * order in the signal frame: struct sigcontext_64 of asm/sigcontext.h.
 */
#ifndef LB_ARCH_X86_H
#define LB_ARCH_X86_H

struct lb_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	__u64 ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
_Static_assert(sizeof(struct lb_regs) == 168, "lb_regs");

/* Context of a perf_event program. */
struct lb_perf_ctx {
	struct lb_regs regs;
	__u64 sample_period;
	__u64 addr;
};

/* Offsets from the SP at the signal trampoline (after its pretcode popped). */
#define LB_SIG_R14 88
#define LB_SIG_BP  120 /* bp, bx, dx, ax, cx follow each other */
#define LB_SIG_SP  160 /* sp, ip follow each other */

#define LB_IS_KERNEL_PC(pc) ((__s64)(pc) < 0)
#define LB_USER_PC_BITS	    47

#endif
