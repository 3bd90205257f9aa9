/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of one file with a LuaJIT VM in it. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "callprobes.h"
#include "debugfile.h"
#include "fields.h"
#include "gcprobes.h"
#include "probes.h"
#include "rodata.h"
#include "scan.h"
#include "vmfacts.h"

#define VERSION_MAX 32 /* bytes; the banner goes on with its authors */

static void add_build_id(struct lb_facts *facts, size_t item,
			 const struct lb_elf *elf)
{
	uint8_t id[LB_BUILD_ID_MAX];
	char text[2 * LB_BUILD_ID_MAX + 1] = "";
	size_t len = 0;

	if (lb_elf_build_id(elf, id, &len))
		return;
	for (size_t i = 0; i < len; i++)
		sprintf(text + 2 * i, "%02x", id[i]);
	lb_facts_text(facts, "vm", item, "build_id", "%s", text);
}

/* For people to read: nothing is decided by it. */
static void add_version(struct lb_facts *facts, size_t item,
			const struct lb_elf *elf)
{
	char text[VERSION_MAX];

	if (lb_rodata_text(elf, "LuaJIT 2.", "", text, sizeof(text)))
		return;
	text[strcspn(text + 7, " ") + 7] = 0;
	lb_facts_text(facts, "vm", item, "version", "%s", text);
}

void lb_vmfacts_brief(struct lb_facts *facts, size_t item,
		      const struct lb_object *object)
{
	add_build_id(facts, item, object->elf);
	add_version(facts, item, object->elf);
	if (object->vm_err == -EOPNOTSUPP) /* nothing was decoded */
		return;
	lb_facts_flag(facts, "vm", item, "gc64", object->luajit.gc64);
	if (object->source.entry_name)
		lb_facts_text(facts, "vm", item, "build", "%s",
			      object->source.entry_name);
}

/* ---- marks ---- */

static void add_marks(struct lb_facts *facts, size_t item,
		      const struct lb_luajit *luajit)
{
	const struct {
		const char *key;
		uint32_t value;
	} marks[] = {
		{ "g2disp", luajit->g2disp },
		{ "g_cur_l", luajit->g_cur_l },
		{ "g_vmstate", luajit->g_vmstate },
		{ "static_dispatch", luajit->static_dispatch },
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (marks[i].value != LB_LUAJIT_NONE)
			lb_facts_number(facts, "vm", item, marks[i].key,
					marks[i].value, NULL);
}

/* ---- symbols ---- */

static int count_function(void *arg, const struct lb_elf_sym *sym)
{
	size_t *n = arg;

	*n += sym->type == STT_FUNC && sym->shndx != SHN_UNDEF;
	return 0;
}

static void add_symbols(struct lb_facts *facts, size_t item,
			const struct lb_elf *elf, const struct lb_proc *proc)
{
	struct lb_section section;
	struct lb_elf *debug;
	size_t n_dynsym = 0, n_symtab = 0;
	const char *place = "none";

	lb_elf_each_sym(elf, ".dynsym", count_function, &n_dynsym);
	lb_elf_each_sym(elf, ".symtab", count_function, &n_symtab);
	lb_facts_number(facts, "vm", item, "dynsym_functions", n_dynsym, NULL);
	lb_facts_number(facts, "vm", item, "symtab_functions", n_symtab, NULL);
	if (!lb_elf_section(elf, ".debug_info", &section)) {
		place = "in the file";
	} else if (!lb_debugfile_open(elf, proc, &debug)) {
		place = "in a file of its own";
		lb_elf_free(debug);
	} else if (!lb_elf_section(elf, ".gnu_debugdata", &section)) {
		place = "symbols only, packed into the file";
	}
	lb_facts_text(facts, "vm", item, "debug_info", "%s", place);
}

const char *lb_vmfacts_unwind_text(const struct lb_object *object)
{
	switch (object->unwind_err) {
	case 0:
		return "usable";
	case -ENODATA:
		return "no .eh_frame";
	case -EBADMSG:
		return "malformed .eh_frame";
	case -ENOSPC:
		return "no room for its unwind table";
	default:
		return strerror(-object->unwind_err);
	}
}

static void add_unwind(struct lb_facts *facts, size_t item,
		       const struct lb_object *object)
{
	const struct lb_unwind *unwind = object->unwind;

	lb_facts_text(facts, "vm", item, "eh_frame", "%s",
		      lb_vmfacts_unwind_text(object));
	if (!unwind)
		return;
	lb_facts_number(facts, "vm", item, "unwind_rows", unwind->n_rows, NULL);
	lb_facts_number(facts, "vm", item, "unwind_bad_records",
			unwind->n_bad_records, NULL);
}

/* ---- offsets ---- */

static void add_offsets(struct lb_facts *facts, size_t item,
			const struct lb_offsets_source *source)
{
	for (size_t i = 0; i < lb_n_fields; i++) {
		const struct lb_field *field = &lb_fields[i];
		uint8_t from = source->from[field->off / sizeof(__u32)];

		lb_facts_number(facts, "offset", item, field->name,
				lb_field_get(&source->offsets, field),
				lb_offsets_from_word(from));
	}
}

/* Can the points be found that other tools put probes on? */
static void add_probe_points(struct lb_facts *facts, size_t item,
			     const struct lb_object *object)
{
	struct lb_probes probes = { 0 };
	const char *missing = NULL;
	struct lb_scan scan;
	int err = lb_scan_offsets(object->elf, &object->luajit, &scan);

	if (!err)
		err = lb_gcprobes_find(object->elf, &object->luajit, &scan,
				       &probes, &missing);
	lb_facts_text(facts, "vm", item, "gc_points", "%s",
		      !err	? "found"
		      : missing ? missing
				: strerror(-err));
	lb_probes_fini(&probes);
	err = lb_callprobes_vm(object->elf, &object->luajit,
			       &object->source.offsets, &probes);
	lb_facts_text(facts, "vm", item, "call_points", "%s",
		      err ? "code of the function headers not understood"
			  : "found");
	lb_probes_fini(&probes);
}

void lb_vmfacts_all(struct lb_facts *facts, size_t item,
		    const struct lb_object *object, const struct lb_proc *proc)
{
	const struct lb_luajit *luajit = &object->luajit;

	lb_vmfacts_brief(facts, item, object);
	lb_facts_number(facts, "vm", item, "vm_vaddr", luajit->vm_vaddr, NULL);
	lb_facts_number(facts, "vm", item, "vm_size", luajit->vm_size, NULL);
	lb_facts_number(facts, "vm", item, "cframe_size", luajit->cframe_size,
			NULL);
	add_symbols(facts, item, object->elf, proc);
	add_unwind(facts, item, object);
	if (object->vm_err == -EOPNOTSUPP) /* nothing was decoded */
		return;
	add_marks(facts, item, luajit);
	add_probe_points(facts, item, object);
	add_offsets(facts, item, &object->source);
}
