/* SPDX-License-Identifier: Apache-2.0 */
/* Why a process cannot be profiled, in words. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "puc.h"
#include "refusal.h"

struct line {
	char *text;
	size_t size;
};

__attribute__((format(printf, 3, 4))) static int
refuse(const struct line *line, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(line->text, line->size, format, args);
	va_end(args);
	return err;
}

/* No file of the process holds a LuaJIT. */
static int refuse_without_vm(const struct lb_subject *subject,
			     const struct line *line)
{
	if (!subject->n_maps)
		return refuse(
			line, -ENOENT,
			"PID %d: no LuaJIT in it: it has no memory mapped "
			"(a kernel thread, or a process that has exited)",
			subject->pid);
	if (subject->n_dropped)
		return refuse(line, -EOPNOTSUPP,
			      "PID %d: %zu executable mappings; the first %d "
			      "of them hold no LuaJIT",
			      subject->pid, subject->n_maps, LB_MAPPINGS_MAX);
	return refuse(line, -ENOENT,
		      "PID %d: no LuaJIT in it: none of its %zu executable "
		      "mappings holds the VM",
		      subject->pid, subject->n_maps);
}

void lb_refusal_vm(const struct lb_object *vm, char *text_ret, size_t size)
{
	const struct line line = { text_ret, size };
	char text[160];

	if (vm->vm_err == -EOPNOTSUPP) {
		refuse(&line, 0,
		       "%s holds a LuaJIT VM at 0x%llx whose entry code is not "
		       "understood",
		       vm->name, (unsigned long long)vm->luajit.vm_vaddr);
	} else if (vm->vm_err) {
		lb_offsets_explain(&vm->source, text, sizeof(text));
		refuse(&line, 0,
		       "%s holds a LuaJIT VM of an unknown build (%s, G2DISP "
		       "%u, cur_L %d): %s",
		       vm->name, vm->luajit.gc64 ? "GC64" : "32-bit references",
		       vm->luajit.g2disp, (int)vm->luajit.g_cur_l, text);
	} else if (vm->contradiction[0]) {
		refuse(&line, 0, "%s holds a LuaJIT VM (%s), but %s", vm->name,
		       vm->source.entry_name ? vm->source.entry_name
					     : "a build in no table",
		       vm->contradiction);
	} else if (!vm->placed) {
		refuse(&line, 0,
		       "%s holds a LuaJIT VM, but its unwind table cannot be "
		       "used: %s",
		       vm->name, strerror(-vm->unwind_err));
	} else {
		refuse(&line, 0,
		       "%s holds a LuaJIT VM, one build more than the %d that "
		       "are looked at in a process",
		       vm->name, LB_VMS_MAX);
	}
}

int lb_refusal_text(const struct lb_subject *subject, char *text_ret,
		    size_t size)
{
	const struct line line = { text_ret, size };
	char why[384];

	if (!subject->vm_unknown)
		return refuse_without_vm(subject, &line);
	lb_refusal_vm(subject->vm_unknown, why, sizeof(why));
	return refuse(&line, -EOPNOTSUPP, "PID %d: %s", subject->pid, why);
}

int lb_refusal_other(const struct lb_subject *subject, char *text_ret,
		     size_t size)
{
	const struct line line = { text_ret, size };
	const struct lb_object *last = NULL;
	char comm[16] = "";

	lb_proc_comm(subject->pid, comm);
	for (size_t i = 0; i < subject->n_maps; i++) {
		const struct lb_object *object = subject->maps[i].object;
		struct lb_puc puc;

		if (!object || !object->elf || object == last)
			continue;
		last = object;
		int err = lb_puc_find(object->elf, &puc);

		if (!err)
			return refuse(
				&line, 0,
				"PID %d (%s): PUC Lua %s found, not "
				"supported yet; this tool profiles LuaJIT",
				subject->pid, comm, puc.version);
		if (err == -EOPNOTSUPP && !object->has_vm)
			return refuse(&line, 0,
				      "PID %d (%s): %s defines the functions "
				      "of LuaJIT, but its VM is not recognised",
				      subject->pid, comm, object->name);
	}
	return -ENOENT;
}
