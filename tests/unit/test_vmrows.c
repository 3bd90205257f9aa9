/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the VM's code against what the code does: LuaJIT is single-stepped,
 * each call is noted with the place of its return address and the registers
 * it must give back, and at every stop in the VM the row has to find both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"
#include "unwind.h"
#include "vmrows.h"
#include "lb_test.h"
#include "lb_write.h"

#define CALLS_MAX 4096
#define VM_MAX	  32768 /* bytes of code */

/*
 * Ways into the VM and out of it. `stop` is a breakpoint: what is before it
 * runs at full speed.
 */
#define SCRIPT_HEAD                                                        \
	"local ffi = require'ffi'\n"                                       \
	"ffi.cdef[[int raise(int); int abs(int);\n"                        \
	"  void qsort(void *, size_t, size_t, int (*)(int *, int *));]]\n" \
	"local function stop() ffi.C.raise(5) end\n"

static const struct script {
	int steps; /* 30 to 40 us each */
	const char *text;
} scripts[] = {
	/* calls from C, metamethods, coroutines */
	{ 15000, SCRIPT_HEAD
	  "local t = setmetatable({}, {__index = function(_, k) return k end,\n"
	  "  __add = function() return 7 end, __call = function() end})\n"
	  "local co = coroutine.wrap(function() while true do\n"
	  "  coroutine.yield(1) pcall(coroutine.yield, 2) end end)\n"
	  "local function body()\n"
	  "  local l = {5, 3, 9, 1, 7}\n"
	  "  table.sort(l, function(a, b) return a < b end)\n"
	  "  local s = string.gsub('a b c', '%a', function(c) return c end)\n"
	  "  s = s .. t.x .. (t + 1) t()\n"
	  "  co() co() pcall(co, 1) select('#', unpack(l))\n"
	  "  local f = loadstring('return ...') f(1, 2, 3)\n"
	  "  return math.floor(3.5) + 7 % 4 + #l\n"
	  "end\n"
	  "for i = 1, 3 do body() end stop()\n"
	  "while true do body() end\n" },
	/* calls through the FFI, and from C back */
	{ 15000, SCRIPT_HEAD "local a = ffi.new('int[5]')\n"
			     "local less = ffi.cast('int (*)(int *, int *)',\n"
			     "  function(x, y) return x[0] - y[0] end)\n"
			     "local function body()\n"
			     "  for i = 0, 4 do a[i] = (i * 7) % 5 end\n"
			     "  ffi.C.qsort(a, 5, 4, less)\n"
			     "  return ffi.C.abs(-4)\n"
			     "end\n"
			     "for i = 1, 3 do body() end stop()\n"
			     "while true do body() end\n" },
	/* errors: to pcall in Lua, to C (the parser's) */
	{ 80000, SCRIPT_HEAD "local function body()\n"
			     "  pcall(error, 1) loadstring('x x')\n"
			     "  xpcall(error, function() end, 2)\n"
			     "end\n"
			     "for i = 1, 3 do body() end stop()\n"
			     "while true do body() end\n" },
	/* finalizers, the one use of lj_vm_pcall that is made here */
	{ 30000, SCRIPT_HEAD
	  "local function gc(x) return math.abs(1) end\n"
	  "local keep = {}\n"
	  "for i = 1, 100 do\n"
	  "  keep[i] = newproxy(true) getmetatable(keep[i]).__gc = gc\n"
	  "end\n"
	  "stop() os.exit(0, true)\n" },
	/* traces: exits, C calls and garbage collection from machine code */
	{ 20000,
	  SCRIPT_HEAD "local function body(n)\n"
		      "  local t = {}\n"
		      "  for i = 1, n do\n"
		      "    t[i % 8 + 1] = {i} local s = tostring(i) .. 'x'\n"
		      "    if i % 5 == 0 then t.x = s end\n"
		      "    if i % 37 == 0 then string.gsub(s, 'x', '') end\n"
		      "  end\n"
		      "end\n"
		      "body(400) stop()\n"
		      "while true do body(400) end\n" },
};

struct call {
	uint64_t slot; /* address of the return address */
	uint64_t rbp;
	uint64_t rbx;
	uint64_t r14;
};

struct tracer {
	pid_t pid;
	struct lb_proc *proc;
	const struct lb_unwind *unwind;
	struct lb_luajit luajit;
	uint64_t bias;
	struct call calls[CALLS_MAX];
	size_t n_calls;
	/* counts, by what was checked */
	uint64_t n_native;
	uint64_t n_return;
	uint64_t n_vm;
	uint64_t n_vm_shifted; /* CFA is not rsp + C frame: internal calls */
	uint64_t n_mismatches;
	uint8_t seen[VM_MAX];
};

static uint64_t word_at(const struct tracer *tracer, uint64_t addr)
{
	uint64_t word = 0;

	lb_proc_read(tracer->proc, addr, &word, sizeof(word));
	return word;
}

static void note_call(struct tracer *tracer, const struct user_regs_struct *old,
		      const struct user_regs_struct *now)
{
	while (tracer->n_calls &&
	       tracer->calls[tracer->n_calls - 1].slot < now->rsp)
		tracer->n_calls--;
	if (now->rsp != old->rsp - 8)
		return;

	uint64_t word = word_at(tracer, now->rsp);

	/* a call has pushed the address behind itself */
	if (word <= old->rip || word > old->rip + 8 ||
	    tracer->n_calls == CALLS_MAX)
		return;
	tracer->calls[tracer->n_calls++] = (struct call){
		.slot = now->rsp,
		.rbp = old->rbp,
		.rbx = old->rbx,
		.r14 = old->r14,
	};
}

static bool reg_ok(const struct tracer *tracer, uint64_t cfa, uint16_t slot,
		   uint64_t now, uint64_t want)
{
	return (slot ? word_at(tracer, cfa - 8 * (uint64_t)slot) : now) == want;
}

/* Does the rule lead to the last call's return address and registers? */
static bool rule_ok(const struct tracer *tracer, const struct lb_rule *rule,
		    const struct user_regs_struct *regs)
{
	const struct call *call = &tracer->calls[tracer->n_calls - 1];
	uint64_t base = rule->kind == LB_RULE_RBP ? regs->rbp : regs->rsp;
	uint64_t cfa = base + (uint64_t)rule->cfa_off;

	return cfa - 8 == call->slot &&
	       reg_ok(tracer, cfa, rule->rbp, regs->rbp, call->rbp) &&
	       reg_ok(tracer, cfa, rule->rbx, regs->rbx, call->rbx) &&
	       reg_ok(tracer, cfa, rule->r14, regs->r14, call->r14);
}

static void check_stop(struct tracer *tracer,
		       const struct user_regs_struct *regs)
{
	uint64_t vaddr = regs->rip - tracer->bias;
	uint64_t off = vaddr - tracer->luajit.vm_vaddr;
	uint64_t end = tracer->luajit.ffi_call_vaddr +
		       tracer->luajit.ffi_call_size - tracer->luajit.vm_vaddr;

	if (off >= end || off >= VM_MAX || !tracer->n_calls)
		return;

	const struct lb_rule *rule = lb_unwind_rule(tracer->unwind, vaddr);

	if (!rule || rule->kind == LB_RULE_VM_EXIT)
		return;

	bool ok = rule_ok(tracer, rule, regs);

	if (rule->kind == LB_RULE_VM) {
		tracer->n_vm++;
		tracer->n_vm_shifted += !ok;
		return;
	}
	tracer->n_native++;
	tracer->n_return += rule->kind == LB_RULE_VM_RETURN;
	tracer->seen[off] = 1;
	if (!ok && tracer->n_mismatches++ < 10)
		fprintf(stderr, "  VM+0x%llx: kind %u cfa %d: wrong\n",
			(unsigned long long)off, rule->kind, rule->cfa_off);
}

static bool wait_stop(pid_t pid, int signo)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) &&
	       WSTOPSIG(status) == signo;
}

static void single_step(struct tracer *tracer, int steps)
{
	struct user_regs_struct old, now;

	ptrace(PTRACE_GETREGS, tracer->pid, NULL, &old);
	for (int i = 0; i < steps; i++) {
		if (ptrace(PTRACE_SINGLESTEP, tracer->pid, NULL, NULL) ||
		    !wait_stop(tracer->pid, SIGTRAP))
			return;
		ptrace(PTRACE_GETREGS, tracer->pid, NULL, &now);
		note_call(tracer, &old, &now);
		check_stop(tracer, &now);
		old = now;
	}
}

static pid_t start(const char *path, const char *script)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		execl(path, path, "-e", script, NULL);
	_exit(1);
}

static int find_bias(struct tracer *tracer, const struct lb_elf *elf)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(tracer->proc, &maps);

	for (size_t i = 0; i < n; i++) {
		const char *name = strrchr(maps[i].path, '/');

		if (maps[i].exec && name && !strncmp(name, "/luajit", 7))
			return lb_elf_bias(elf, maps[i].start, maps[i].off,
					   &tracer->bias);
	}
	return -ENOENT;
}

/* Return: false when the kernel does not let us trace. */
static bool run_script(struct tracer *tracer, const struct lb_elf *elf,
		       const struct script *script)
{
	bool traced;

	tracer->n_calls = 0;
	tracer->pid = start(lb_elf_name(elf), script->text);
	traced = wait_stop(tracer->pid, SIGTRAP); /* exec */
	if (traced) {
		ptrace(PTRACE_CONT, tracer->pid, NULL, NULL);
		CHECK(wait_stop(tracer->pid, SIGTRAP)); /* stop() */
		CHECK_INT(lb_proc_open(tracer->pid, &tracer->proc), 0);
		CHECK_INT(find_bias(tracer, elf), 0);
		single_step(tracer, script->steps);
		lb_proc_free(tracer->proc);
	}
	kill(tracer->pid, SIGKILL);
	waitpid(tracer->pid, NULL, 0);
	return traced;
}

/* Rows of special states; with @seen those that a step has come to. */
static unsigned int count_rows(const struct tracer *tracer, bool seen)
{
	const struct lb_unwind *unwind = tracer->unwind;
	uint64_t lo = tracer->luajit.vm_vaddr - unwind->vaddr_lo;
	uint64_t hi = tracer->luajit.ffi_call_vaddr +
		      tracer->luajit.ffi_call_size - unwind->vaddr_lo;
	unsigned int n = 0;

	for (uint32_t i = 0; i + 1 < unwind->n_rows; i++) {
		const struct lb_row *row = &unwind->rows[i];
		uint8_t kind = unwind->rules[row->rule].kind;

		if (row->vaddr < lo || row->vaddr >= hi || kind == LB_RULE_VM ||
		    kind == LB_RULE_VM_EXIT)
			continue;
		if (!seen || memchr(tracer->seen + (row->vaddr - lo), 1,
				    unwind->rows[i + 1].vaddr - row->vaddr))
			n++;
	}
	return n;
}

static int check_command(const char *path)
{
	static struct tracer tracer;
	struct lb_unwind *unwind;
	struct lb_elf *elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -ENOENT;
	memset(&tracer, 0, sizeof(tracer));
	CHECK_INT(lb_elf_open_fd(fd, path, &elf), 0);
	close(fd);
	if (lb_luajit_find(elf, &tracer.luajit)) {
		lb_elf_free(elf);
		return -ENOENT;
	}
	CHECK_INT(lb_unwind_build(elf, &tracer.luajit, &unwind), 0);
	tracer.unwind = unwind;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (!run_script(&tracer, elf, &scripts[i]))
			ret = -EPERM;
	}
	if (!ret) {
		CHECK_INT(tracer.n_mismatches, 0);
		CHECK(tracer.n_native > 500);
		CHECK(tracer.n_return > 50);
	}
	fprintf(stderr,
		"%s: %llu stops in special states (%llu on the way out), "
		"%llu wrong; %u of %u rows met; %llu in the VM proper, "
		"%.1f %% with rsp moved\n",
		path, (unsigned long long)tracer.n_native,
		(unsigned long long)tracer.n_return,
		(unsigned long long)tracer.n_mismatches,
		count_rows(&tracer, true), count_rows(&tracer, false),
		(unsigned long long)tracer.n_vm,
		100.0 * (double)tracer.n_vm_shifted /
			(double)(tracer.n_vm ? tracer.n_vm : 1));
	lb_unwind_free(unwind);
	lb_elf_free(elf);
	return ret;
}

static void test_rows_against_single_steps(void)
{
	static const char *const paths[] = {
		"/usr/bin/luajit",
		".output/deb/upstream/usr/bin/luajit",
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		int err = check_command(paths[i]);

		if (err == -EPERM) {
			SKIP("ptrace: not allowed here");
			return;
		}
		n += !err;
	}
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

/* ---- code made here ---- */

struct rules {
	uint64_t vaddrs[512];
	struct lb_rule rules[512];
	size_t n;
};

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	struct rules *rules = arg;

	if (rules->n < 512) {
		rules->vaddrs[rules->n] = vaddr;
		rules->rules[rules->n++] = *rule;
	}
	return 0;
}

static void run_code(const void *code, size_t size, struct rules *rules)
{
	const struct wr eh = { 0 };
	struct wr image = wr_eh_image(&eh, code, size);
	const struct lb_luajit luajit = {
		.vm_vaddr = WR_TEXT,
		.vm_size = size,
		.cframe_size = 80,
		.ffi_call_vaddr = WR_TEXT,
		.ffi_call_size = size,
	};
	struct lb_elf *elf;

	memset(rules, 0, sizeof(*rules));
	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_INT(lb_vmrows_vm(elf, &luajit, on_rule, rules), 0);
	CHECK(rules->n && rules->vaddrs[0] == WR_TEXT);
	for (size_t i = 1; i < rules->n; i++)
		CHECK(rules->vaddrs[i] > rules->vaddrs[i - 1] &&
		      rules->vaddrs[i] < WR_TEXT + size);

	size_t n_vm = rules->n;

	lb_vmrows_ffi_call(elf, &luajit, on_rule, rules);
	rules->n = n_vm;
	lb_elf_free(elf);
	wr_free(&image);
}

static void test_entry_and_way_out(void)
{
	/* nop; an entry; the store of cframe and of cur_L; nop; the epilogue */
	static const char code[] =
		"\x90\x55\x53\x41\x57\x41\x56\x48\x83\xec\x28\x90\x48\x89\x65"
		"\x50\x49\x89\xae\xc8\xf1\xff\xff\x90\x48\x83\xc4\x28\x41\x5e"
		"\x41\x5f\x5b\x5d\xc3\x90";
	static const struct {
		uint32_t off;
		enum lb_rule_kind kind;
		int cfa_off;
		uint16_t rbp, rbx, r14;
	} want[] = {
		{ 0, LB_RULE_VM, 80, 2, 3, 5 },
		{ 1, LB_RULE_RSP, 8, 0, 0, 0 },
		{ 2, LB_RULE_RSP, 16, 2, 0, 0 },
		{ 3, LB_RULE_RSP, 24, 2, 3, 0 },
		{ 5, LB_RULE_RSP, 32, 2, 3, 0 },
		{ 7, LB_RULE_RSP, 40, 2, 3, 5 },
		{ 11, LB_RULE_RSP, 80, 2, 3, 5 },
		{ 23, LB_RULE_VM, 80, 2, 3, 5 },
		{ 24, LB_RULE_RSP, 80, 2, 3, 5 },
		{ 28, LB_RULE_RSP, 40, 2, 3, 5 },
		{ 30, LB_RULE_RSP, 32, 2, 3, 0 },
		{ 32, LB_RULE_RSP, 24, 2, 3, 0 },
		{ 33, LB_RULE_RSP, 16, 2, 0, 0 },
		{ 34, LB_RULE_RSP, 8, 0, 0, 0 },
		{ 35, LB_RULE_VM, 80, 2, 3, 5 },
	};
	struct rules rules;
	const size_t n = sizeof(want) / sizeof(want[0]);

	run_code(code, sizeof(code) - 1, &rules);
	CHECK_INT(rules.n, n);
	for (size_t i = 0; i < n && i < rules.n; i++) {
		CHECK_INT(rules.vaddrs[i], WR_TEXT + want[i].off);
		CHECK_INT(rules.rules[i].kind, want[i].kind);
		CHECK_INT(rules.rules[i].cfa_off, want[i].cfa_off);
		CHECK_INT(rules.rules[i].rbp, want[i].rbp);
		CHECK_INT(rules.rules[i].rbx, want[i].rbx);
		CHECK_INT(rules.rules[i].r14, want[i].r14);
		CHECK_INT(rules.rules[i].flags,
			  want[i].kind == LB_RULE_RSP ? LB_RULE_F_VM : 0);
	}
}

/* Pieces of all patterns in any order, and cut anywhere. */
static void test_hostile_code(void)
{
	static const char *const pieces[] = {
		"\x55\x53\x41\x57\x41\x56\x48\x83\xec\x28",
		"\x53\x41\x57\x41\x56\x48\x83\xec\x28",
		"\x48\x89\x65\x50",
		"\x49\x89\xae\xc8\xf1\xff\xff",
		"\x41\xc7\x86\x10\xf1\xff\xff\xfe\xff\xff\xff",
		"\x48\x83\xc4\x28\x41\x5e\x41\x5f\x5b\x5d\xe9",
		"\x48\xf7\xdb",
		"\x48\x89\x5d\x20",
		"\x89\xf0\x48\x89\xfc",
		"\x48\x83\xe7\xfc\x48\x89\xfc",
		"\x41\x55\x41\x54\x41\x53\x41\x52\x41\x51\x41\x50\x57\x56\x55"
		"\x48\x8d\x6c\x24",
		"\x48\x89\xcc",
		"\xe8\x10\x10\x10\x10\x48\x8b\x43\x70",
		"\xf2\x0f\x10\x43\x30\xe9",
		"\x89\xf8\x53\x31\xc9\x0f\xa2",
		"\x5b\xc3",
		"\x55\x48\x89\xe5\x53\x48\x89\xfb",
		"\x48\x8b\x5d\xf8\xc9\xc3",
		"\x83\xc0\x01",
		"\xe9",
	};
	unsigned int seed = 1;

	for (int round = 0; round < 3000; round++) {
		struct wr code = { 0 };
		struct rules rules;

		do {
			seed = seed * 1103515245 + 12345;

			const char *piece =
				pieces[(seed >> 16) %
				       (sizeof(pieces) / sizeof(pieces[0]))];

			wr_bytes(&code, piece, strlen(piece));
		} while (seed >> 28);
		seed = seed * 1103515245 + 12345;
		code.size -= (seed >> 16) % code.size;
		run_code(code.data, code.size, &rules);
		wr_free(&code);
	}
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_entry_and_way_out),
		LB_TEST(test_hostile_code),
		LB_TEST(test_rows_against_single_steps),
	};

	return LB_TEST_MAIN(cases);
}
