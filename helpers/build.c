/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one build of LuaJIT.
 *
 * Debug info tells all that is a member of a struct or an enumerator. The C
 * frame is the assembler's: its size is in .eh_frame or .debug_frame, its slots
 * are where lj_vm_call stores its arguments. Debug info and code of one file
 * must agree on what both show.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build.h"
#include "dwarf.h"
#include "fields.h"
#include "offsets.h"

#define MARKER	   "lua_State.glref" /* PUC Lua's lua_State has l_G */
#define TABLE_MAX  (16 << 20)	     /* bytes */
#define ROW_MAX	   256		     /* bytes of a row's name */
#define CFRAME_MAX 256

__attribute__((format(printf, 4, 5))) static int
fail(struct lb_build_error *error, int err, const char *hint,
     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	snprintf(error->hint, sizeof(error->hint), "%s", hint);
	error->no_debug_info = false;
	return err;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* ---- debug info ---- */

static int dwarf_member(void *arg, const char *path, uint64_t *off_ret,
			uint64_t *size_ret)
{
	return lb_dwarf_member(arg, path, off_ret, size_ret);
}

static int dwarf_enumerator(void *arg, const char *name, int64_t *value_ret)
{
	return lb_dwarf_enum(arg, name, value_ret);
}

static int fail_read(struct lb_build_error *error, int err, const char *path)
{
	return fail(error, err, "check the path and its permissions",
		    "%s: cannot be read: %s", path, strerror(-err));
}

static int check_readable(const char *path, struct lb_build_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return fail_read(error, -errno, path);
	close(fd);
	return 0;
}

static int fail_dwarf(struct lb_build_error *error, int err, const char *path)
{
	switch (err) {
	case -ENOEXEC:
	case -EBADMSG:
		return fail(error, err,
			    "name a binary, a library, a static archive or a "
			    "debug file",
			    "%s: not an ELF file, or damaged", path);
	case -ENODATA:
		return fail(error, err,
			    "install the package with its debug symbols, or "
			    "name the debug file with --debug-file",
			    "%s: no debug info in it, and no separate debug "
			    "file found",
			    path);
	case -ENOENT:
		return fail(error, err,
			    "only LuaJIT is known here, built with -g "
			    "(make CCDEBUG=-g)",
			    "%s: its debug info has no LuaJIT: no unit "
			    "defines %s",
			    path, MARKER);
	default:
		return fail_read(error, err, path);
	}
}

static int fail_field(struct lb_build_error *error, int err, const char *path,
		      const char *field)
{
	const char *what = err == -ENOENT   ? "is missing"
			   : err == -EEXIST ? "differs between two units: more "
					      "than one LuaJIT in the file"
			   : err == -ERANGE ? "has a value that cannot be"
					    : "cannot be read";

	return fail(error, err,
		    "the build is newer than this tool, or not LuaJIT",
		    "%s: %s %s", path, field ? field : "?", what);
}

/* ---- code ---- */

/* Opens what has headers that lb_elf takes; others are for libdw alone. */
static struct lb_elf *open_elf(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct lb_elf *elf = NULL;

	if (fd < 0)
		return NULL;
	if (lb_elf_open_fd(fd, path, &elf))
		elf = NULL;
	close(fd);
	return elf;
}

/* Size and slots of the C frame; and how they were found. */
static int read_code(const char *path, const struct lb_elf *elf,
		     struct lb_dwarf *dwarf, uint32_t gc64,
		     struct lb_luajit *luajit, bool *have_marks,
		     struct lb_build *build, struct lb_build_error *error)
{
	char *source = build->source[LB_BUILD_CFRAME];
	const size_t size = sizeof(build->source[0]);
	struct lb_dwarf_vm vm;
	int err = elf ? lb_luajit_find(elf, luajit) : -ENODATA;

	*have_marks = !err;
	if (!err) {
		snprintf(source, size, "C frame: from its machine code");
		return 0;
	}
	if (err == -EOPNOTSUPP)
		return fail(error, err, "it cannot be traced either",
			    "%s: the VM's entry code at 0x%llx is not "
			    "understood",
			    path, (unsigned long long)luajit->vm_vaddr);
	if (lb_dwarf_vm(dwarf, &vm))
		return fail(error, -ENODATA,
			    "name the binary or library itself, and this file "
			    "with --debug-file",
			    "%s: neither code nor .debug_frame of the VM: its "
			    "C frame is not known",
			    path);
	memset(luajit, 0, sizeof(*luajit));
	luajit->cframe_size = vm.cframe_size;
	luajit->gc64 = gc64;
	if (vm.code) {
		err = lb_luajit_decode(vm.code, vm.size, luajit);
		if (err)
			return fail(error, err, "it cannot be traced either",
				    "%s: the VM's entry code is not understood",
				    path);
		*have_marks = true;
		snprintf(source, size, "C frame: from its machine code");
		return 0;
	}
	snprintf(source, size,
		 "C frame: size from .debug_frame; no code in the file, so "
		 "slots by rule");
	return lb_fields_slots_by_rule(luajit); /* 80 or 96: both are known */
}

/* Debug info of another build than the code would give wrong offsets. */
static int check_marks(const char *path, const struct lb_luajit *luajit,
		       const struct lj_offsets *offsets,
		       struct lb_build_error *error)
{
	static const char hint[] = "is it the debug file of this very build?";

	if (luajit->gc64 != offsets->gc64)
		return fail(error, -EINVAL, hint,
			    "%s: code has %u-bit references, debug info %u-bit",
			    path, luajit->gc64 ? 64 : 32,
			    offsets->gc64 ? 64 : 32);
	if (lb_offsets_marks_equal(luajit, offsets))
		return 0;
	return fail(error, -EINVAL, hint,
		    "%s: code and debug info differ: G2DISP %d and %d, cur_L "
		    "%d and %d, vmstate %d and %d, static dispatch %d and %d",
		    path, (int)luajit->g2disp, (int)offsets->g2disp,
		    (int)luajit->g_cur_l, (int)offsets->g_cur_l,
		    (int)luajit->g_vmstate, (int)offsets->g_vmstate,
		    (int)luajit->static_dispatch,
		    (int)offsets->static_dispatch);
}

static void tell_build_id(const struct lb_elf *elf, char *text, size_t size)
{
	uint8_t id[LB_BUILD_ID_MAX];
	size_t len = 0, n;

	if (!elf || lb_elf_build_id(elf, id, &len))
		len = 0;
	n = (size_t)snprintf(text, size, len ? "build ID " : "no build ID");
	for (size_t i = 0; i < len && n + 3 < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%02x", id[i]);
}

/* A debug file that was given must be that of the file, where both tell. */
static int check_debug_file(const struct lb_elf *elf, const char *path,
			    const char *debug_path,
			    struct lb_build_error *error)
{
	struct lb_elf *debug = open_elf(debug_path);
	uint8_t ids[2][LB_BUILD_ID_MAX];
	size_t lens[2];
	bool differ = elf && debug && !lb_elf_build_id(elf, ids[0], &lens[0]) &&
		      !lb_elf_build_id(debug, ids[1], &lens[1]) &&
		      (lens[0] != lens[1] || memcmp(ids[0], ids[1], lens[0]));

	lb_elf_free(debug);
	if (!differ)
		return 0;
	return fail(error, -EINVAL, "compare: readelf -n",
		    "%s: not the debug file of %s: another build ID",
		    debug_path, path);
}

static int read_all(const char *path, const char *debug_path,
		    const struct lb_elf *elf, struct lb_dwarf *dwarf,
		    struct lb_build *build, struct lb_build_error *error)
{
	const struct lb_field_source source = { dwarf, dwarf_member,
						dwarf_enumerator };
	struct lb_luajit luajit = { 0 };
	const char *field = NULL;
	bool have_marks;
	int err = lb_fields_read(&source, &build->offsets, &field);

	if (err)
		return fail_field(error, err, path, field);
	err = read_code(path, elf, dwarf, build->offsets.gc64, &luajit,
			&have_marks, build, error);
	if (err)
		return err;
	lb_fields_set_code(&build->offsets, &luajit);
	if (have_marks) {
		err = check_marks(path, &luajit, &build->offsets, error);
		if (err)
			return err;
	}
	snprintf(build->file, sizeof(build->file), "%s", base_name(path));
	snprintf(build->source[LB_BUILD_FILE], sizeof(build->source[0]),
		 debug_path ? "debug info of %s, from %s" : "debug info of %s",
		 build->file, debug_path ? base_name(debug_path) : "");
	tell_build_id(elf, build->source[LB_BUILD_ID],
		      sizeof(build->source[0]));
	return 0;
}

int lb_build_read(const char *path, const char *debug_path,
		  struct lb_build *build_ret, struct lb_build_error *error)
{
	struct lb_build build = { 0 };
	struct lb_dwarf *dwarf;
	struct lb_elf *elf;
	int err;

	err = check_readable(path, error);
	if (!err && debug_path)
		err = check_readable(debug_path, error);
	if (err)
		return err;
	err = lb_dwarf_open(path, debug_path, MARKER, &dwarf);
	if (err) {
		fail_dwarf(error, err, path);
		error->no_debug_info = err == -ENODATA || err == -ENOENT;
		return err;
	}
	elf = open_elf(path);
	err = debug_path ? check_debug_file(elf, path, debug_path, error) : 0;
	if (!err)
		err = read_all(path, debug_path, elf, dwarf, &build, error);
	lb_elf_free(elf);
	lb_dwarf_free(dwarf);
	if (!err)
		*build_ret = build;
	return err;
}

/* ---- code alone ---- */

/* Fields of the entries with these marks, and whether all of them agree. */
static void read_entries(const struct lb_luajit *luajit,
			 struct lj_offsets *offsets, bool *agree,
			 const char **name_ret)
{
	const struct lj_offsets *entry;
	const char *name;
	size_t n = 0;

	for (size_t i = 0; !lb_offsets_entry(i, &entry, &name); i++) {
		if (!lb_offsets_marks_equal(luajit, entry))
			continue;
		if (!n++) {
			*offsets = *entry;
			*name_ret = name;
		}
		for (size_t j = 0; j < lb_n_fields; j++)
			agree[j] = (n == 1 || agree[j]) &&
				   lb_field_get(entry, &lb_fields[j]) ==
					   lb_field_get(offsets, &lb_fields[j]);
	}
}

/* Of both; the code counts where it shows a field. Return: how many differ. */
static size_t merge(const struct lb_scan *scan, const struct lj_offsets *entry,
		    const bool *agree, struct lb_build *build)
{
	size_t n_differ = 0;

	build->offsets = scan->offsets;
	for (size_t i = 0; i < lb_n_fields; i++) {
		uint32_t value = lb_field_get(entry, &lb_fields[i]);

		if (scan->known[i]) {
			n_differ += agree[i] &&
				    lb_field_get(&build->offsets,
						 &lb_fields[i]) != value;
		} else if (agree[i]) {
			lb_field_set(&build->offsets, &lb_fields[i], value);
		} else {
			build->unknown[i] = true;
			build->n_unknown++;
		}
	}
	return n_differ;
}

static void tell_scan(const char *path, const struct lb_elf *elf,
		      const struct lb_scan *scan, bool has_entry,
		      struct lb_build *build)
{
	const size_t size = sizeof(build->source[0]);
	const size_t n_entry = lb_n_fields - scan->n_known - build->n_unknown;

	snprintf(build->file, sizeof(build->file), "%s", base_name(path));
	snprintf(build->source[LB_BUILD_FILE], size,
		 "code of %s, no debug info", build->file);
	tell_build_id(elf, build->source[LB_BUILD_ID], size);
	snprintf(build->source[LB_BUILD_CFRAME], size,
		 has_entry ? "%u fields from its machine code, %zu from the "
			     "entry with its marks"
			   : "%u fields from its machine code; no entry has "
			     "its marks",
		 scan->n_known, n_entry);
	if (build->n_unknown)
		snprintf(build->source[LB_BUILD_UNKNOWN], size,
			 "%zu fields are not known and left out",
			 build->n_unknown);
}

static int scan_elf(const char *path, const struct lb_elf *elf,
		    struct lb_build *build, struct lb_scan *scan,
		    struct lb_build_error *error)
{
	struct lb_luajit luajit;
	struct lj_offsets entry = { 0 };
	bool agree[LB_SCAN_N_FIELDS] = { false };
	const char *name = NULL;
	int err = lb_luajit_find(elf, &luajit);

	if (!err)
		err = lb_scan_offsets(elf, &luajit, scan);
	if (err == -EOPNOTSUPP)
		return fail(error, err, "it cannot be traced either",
			    "%s: no debug info in it, and the VM's code at "
			    "0x%llx is "
			    "not understood",
			    path, (unsigned long long)luajit.vm_vaddr);
	if (err)
		return fail(
			error, err,
			"name a file that holds LuaJIT, not one that "
			"loads it",
			"%s: no debug info in it, and no LuaJIT in its code",
			path);
	read_entries(&luajit, &entry, agree, &name);
	if (merge(scan, &entry, agree, build))
		err = fail(error, -EINVAL, "compare: lj-offsets --check FILE",
			   "%s: code and entry \"%s\" with its marks differ",
			   path, name);
	tell_scan(path, elf, scan, name != NULL, build);
	return err;
}

int lb_build_scan(const char *path, struct lb_build *build_ret,
		  struct lb_scan *scan_ret, struct lb_build_error *error)
{
	struct lb_build build = { 0 };
	struct lb_elf *elf = open_elf(path);
	int err;

	if (!elf)
		return fail(error, -ENOEXEC, "64-bit x86 files only",
			    "%s: not an ELF file, or damaged", path);
	err = scan_elf(path, elf, &build, scan_ret, error);
	lb_elf_free(elf);
	if (!err || err == -EINVAL)
		*build_ret = build;
	return err;
}

/* ---- table of offsets ---- */

struct table {
	const char *text; /* NUL-terminated */
	size_t column;
};

/* Start of a line's field, NULL when the line has fewer. */
static const char *field_of(const char *line, size_t index)
{
	while (index--) {
		line += strcspn(line, "\t\n");
		if (*line != '\t')
			return NULL;
		line++;
	}
	return line;
}

/* The cell in the row @prefix@name@suffix. */
static const char *cell_of(const struct table *table, const char *prefix,
			   const char *name, const char *suffix)
{
	char want[ROW_MAX];
	size_t len = (size_t)snprintf(want, sizeof(want), "%s%s%s\t", prefix,
				      name, suffix);

	if (len >= sizeof(want))
		return NULL;
	for (const char *line = table->text; line && *line;) {
		if (!strncmp(line, want, len)) {
			const char *cell = field_of(line, table->column);

			return cell && *cell != '-' ? cell : NULL;
		}
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return NULL;
}

static int number(const char *text, const char *ends, uint64_t *value_ret,
		  const char **end_ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EBADMSG;
	*value_ret = strtoull(text, &end, 10);
	*end_ret = end;
	return *end && !strchr(ends, *end) ? -EBADMSG : 0;
}

static int table_member(void *arg, const char *path, uint64_t *off_ret,
			uint64_t *size_ret)
{
	const char *cell = cell_of(arg, "", path, ""), *end;
	int err;

	if (!cell) { /* a type: its size */
		cell = cell_of(arg, "", path, ".SIZEOF");
		*off_ret = 0;
		return cell ? number(cell, "\t\n", size_ret, &end) : -ENOENT;
	}
	err = number(cell, ":", off_ret, &end);
	if (err || !*end)
		return -EBADMSG;
	return number(end + 1, "\t\n", size_ret, &end);
}

static int table_number(void *arg, const char *prefix, const char *name,
			uint64_t *value_ret)
{
	const char *cell = cell_of(arg, prefix, name, ""), *end;

	return cell ? number(cell, "\t\n", value_ret, &end) : -ENOENT;
}

static int table_enumerator(void *arg, const char *name, int64_t *value_ret)
{
	uint64_t value;
	int err = table_number(arg, "E.", name, &value);

	if (!err)
		*value_ret = (int64_t)value;
	return err;
}

static int table_code(struct table *table, struct lb_luajit *luajit,
		      const char **field_ret)
{
	const struct {
		const char *name;
		uint32_t *to;
	} rows[] = {
		{ "CFRAME_SIZE", &luajit->cframe_size },
		{ "SAVE_NRES", &luajit->cf_nres },
		{ "SAVE_L", &luajit->cf_l },
		{ "SAVE_PC", &luajit->cf_pc },
		{ "SAVE_CFRAME", &luajit->cf_prev },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t value;
		int err = table_number(table, "D.", rows[i].name, &value);

		*field_ret = rows[i].name;
		if (!err && value > CFRAME_MAX)
			err = -ERANGE;
		if (err)
			return err;
		*rows[i].to = (uint32_t)value;
	}
	return 0;
}

static int find_column(const char *text, const char *column, size_t *index_ret)
{
	size_t len = strlen(column);

	for (size_t i = 1; field_of(text, i); i++) {
		const char *name = field_of(text, i);

		if (strcspn(name, "\t\n") == len &&
		    !strncmp(name, column, len)) {
			*index_ret = i;
			return 0;
		}
	}
	return -ENOENT;
}

static int read_text(const char *path, char **text_ret)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	size_t size = 0, cap = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		if (cap - size < 4096) {
			char *bigger = cap < TABLE_MAX
					       ? realloc(text, cap + 65536)
					       : NULL;

			if (!bigger) {
				free(text);
				return cap < TABLE_MAX ? -ENOMEM : -E2BIG;
			}
			text = bigger;
			cap += 65536;
		}
		n = read(fd, text + size, cap - size - 1);
		if (n < 0 && errno != EINTR) {
			int err = -errno;

			free(text);
			return err;
		}
		size += n > 0 ? (size_t)n : 0;
	} while (n);
	text[size] = '\0';
	*text_ret = text;
	return 0;
}

int lb_build_read_table(const char *path, const char *column,
			struct lb_build *build_ret,
			struct lb_build_error *error)
{
	_cleanup_free_ char *text = NULL;
	struct table table;
	const struct lb_field_source source = { &table, table_member,
						table_enumerator };
	struct lb_build build = { 0 };
	struct lb_luajit luajit = { 0 };
	const char *field = NULL;
	int err = read_text(path, &text);

	if (err)
		return fail_read(error, err, path);
	table.text = text;
	if (find_column(text, column, &table.column))
		return fail(error, -ENOENT,
			    "the first line of the table names its columns",
			    "%s: no column %s", path, column);
	err = lb_fields_read(&source, &build.offsets, &field);
	if (!err)
		err = table_code(&table, &luajit, &field);
	if (err)
		return fail_field(error, err, path, field);
	lb_fields_set_code(&build.offsets, &luajit);
	snprintf(build.file, sizeof(build.file), "%s", column);
	snprintf(build.source[LB_BUILD_FILE], sizeof(build.source[0]),
		 "table of offsets, column %s", column);
	*build_ret = build;
	return 0;
}
