/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of structs and values of enums, from the debug info (DWARF) of a file.
 *
 * libdwfl opens the file: it relocates objects, walks archives and finds
 * separate debug files. The named types and the enumerators of all units of
 * the wanted code go into one sorted list, and a look-up asks every unit that
 * has the name: they must agree. Units are walked through DW_TAG_imported_unit
 * (dwz). Type units (-fdebug-types-section) do not tell which code they belong
 * to: they answer for what no unit of the wanted code defines.
 * Specification: DWARF 5, sections 5.6 to 5.8 and 7.5.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "dwarf.h"

#define PEEL_MAX  32	    /* typedefs and qualifiers in a row */
#define NEST_MAX  16	    /* anonymous members, dimensions, imports */
#define DIES_MAX  (1 << 26) /* looked at in one file */
#define PATH_PART 128	    /* bytes of one name in a path */

struct named {
	const char *name;
	Dwarf_Die die;
	size_t index; /* order in the file */
	bool is_enum; /* an enumerator, not a type */
	bool is_weak; /* from a type unit */
};

struct lb_dwarf {
	Dwfl *dwfl;
	char *debug_path;
	Elf *file;   /* once more, for lb_dwarf_vm() */
	Elf *member; /* of an archive: the one with the VM */
	int fd;
	struct named *named;
	size_t n, cap;
	uint64_t n_dies;
	/* while it is opened */
	const char *marker;
	bool any_units, any_marked;
	bool weak; /* in a type unit */
	int err;
};

/* ---- types ---- */

static int follow(Dwarf_Die *die, unsigned int name, Dwarf_Die *target_ret)
{
	Dwarf_Attribute attr;

	if (!dwarf_attr(die, name, &attr) ||
	    !dwarf_formref_die(&attr, target_ret))
		return -EBADMSG;
	return 0;
}

/* Without typedefs, qualifiers and declarations of what a type unit defines. */
static int peel(Dwarf_Die *die)
{
	for (int i = 0; i < PEEL_MAX; i++) {
		Dwarf_Die target;
		unsigned int name = DW_AT_type;

		switch (dwarf_tag(die)) {
		case DW_TAG_typedef:
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
			break;
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
		case DW_TAG_class_type:
			if (!dwarf_hasattr(die, DW_AT_signature))
				return 0;
			name = DW_AT_signature;
			break;
		default:
			return 0;
		}
		int err = follow(die, name, &target);

		if (err)
			return err;
		*die = target;
	}
	return -EBADMSG;
}

static bool is_struct(Dwarf_Die *die)
{
	int tag = dwarf_tag(die);

	return (tag == DW_TAG_structure_type || tag == DW_TAG_union_type ||
		tag == DW_TAG_class_type) &&
	       !dwarf_hasattr(die, DW_AT_declaration);
}

/* Number of elements of one dimension; 0 if it is not told. */
static uint64_t dimension(Dwarf_Die *range)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;

	if (dwarf_attr(range, DW_AT_count, &attr) &&
	    !dwarf_formudata(&attr, &value))
		return value;
	/* GCC writes ~0 as upper bound of an array of length 0 */
	if (dwarf_attr(range, DW_AT_upper_bound, &attr) &&
	    !dwarf_formudata(&attr, &value))
		return value + 1;
	return 0;
}

static int type_size(Dwarf_Die die, uint64_t *size_ret)
{
	uint64_t times = 1;

	for (int i = 0; i < NEST_MAX; i++) {
		Dwarf_Die child, target;
		int err = peel(&die), tag, ret;

		if (err)
			return err;
		tag = dwarf_tag(&die);
		ret = dwarf_bytesize(&die);
		if (ret >= 0) {
			if (__builtin_mul_overflow(times, (uint64_t)ret,
						   size_ret))
				return -EBADMSG;
			return 0;
		}
		if (tag == DW_TAG_pointer_type) {
			*size_ret = times * 8;
			return 0;
		}
		if (tag != DW_TAG_array_type) {
			*size_ret = 0; /* a function, or only declared */
			return 0;
		}
		ret = dwarf_child(&die, &child);
		for (int j = 0; !ret && j < NEST_MAX; j++) {
			if (dwarf_tag(&child) == DW_TAG_subrange_type &&
			    __builtin_mul_overflow(times, dimension(&child),
						   &times))
				return -EBADMSG;
			ret = dwarf_siblingof(&child, &child);
		}
		err = follow(&die, DW_AT_type, &target);
		if (err)
			return err;
		die = target;
	}
	return -EBADMSG;
}

/* Offset of a DW_TAG_member in its struct; a member of a union has none. */
static int member_off(Dwarf_Die *die, uint64_t *off_ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;
	Dwarf_Op *ops;
	size_t n;

	if (dwarf_hasattr(die, DW_AT_bit_size))
		return -EOPNOTSUPP;
	*off_ret = 0;
	if (!dwarf_attr(die, DW_AT_data_member_location, &attr))
		return 0;
	if (!dwarf_formudata(&attr, &value)) {
		*off_ret = value;
		return 0;
	}
	/* DWARF 2: an expression */
	if (dwarf_getlocation(&attr, &ops, &n) || n != 1 ||
	    ops[0].atom != DW_OP_plus_uconst)
		return -EOPNOTSUPP;
	*off_ret = ops[0].number;
	return 0;
}

/* Member @name of @type, also in anonymous members; its type in @type. */
static int find_member(Dwarf_Die *type, const char *name, uint64_t *off,
		       int depth)
{
	Dwarf_Die child;
	int ret;

	if (depth > NEST_MAX)
		return -EBADMSG;
	ret = dwarf_child(type, &child);
	for (int i = 0; !ret && i < 1 << 16; i++) {
		const char *its_name = dwarf_diename(&child);
		Dwarf_Die its_type;
		uint64_t its_off;

		if (dwarf_tag(&child) == DW_TAG_member &&
		    (!its_name || !strcmp(its_name, name)) &&
		    !follow(&child, DW_AT_type, &its_type)) {
			int err = member_off(&child, &its_off);

			if (err && its_name)
				return err;
			its_off += *off;
			if (!err && !its_name) {
				err = peel(&its_type);
				if (!err && is_struct(&its_type))
					err = find_member(&its_type, name,
							  &its_off, depth + 1);
				else
					err = -ENOENT;
			}
			if (!err) {
				*type = its_type;
				*off = its_off;
				return 0;
			}
		}
		ret = dwarf_siblingof(&child, &child);
	}
	return ret < 0 ? -EBADMSG : -ENOENT;
}

/* Along "member.member", which may be empty. */
static int walk_path(Dwarf_Die type, const char *path, uint64_t *off_ret,
		     uint64_t *size_ret)
{
	uint64_t off = 0;

	while (*path) {
		size_t len = strcspn(path, ".");
		char name[PATH_PART];
		int err = peel(&type);

		if (err)
			return err;
		if (len >= sizeof(name) || !is_struct(&type))
			return -ENOENT;
		memcpy(name, path, len);
		name[len] = '\0';
		err = find_member(&type, name, &off, 0);
		if (err)
			return err;
		path += len + (path[len] == '.');
	}
	*off_ret = off;
	return type_size(type, size_ret);
}

/* ---- collecting ---- */

static int add_named(struct lb_dwarf *dwarf, const Dwarf_Die *die,
		     const char *name, bool is_enum)
{
	if (dwarf->n == dwarf->cap) {
		size_t cap = dwarf->cap ? 2 * dwarf->cap : 4096;
		void *bigger =
			realloc(dwarf->named, cap * sizeof(struct named));

		if (!bigger)
			return -ENOMEM;
		dwarf->named = bigger;
		dwarf->cap = cap;
	}
	dwarf->named[dwarf->n] = (struct named){
		.name = name,
		.die = *die,
		.index = dwarf->n,
		.is_enum = is_enum,
		.is_weak = dwarf->weak,
	};
	dwarf->n++;
	return 0;
}

static int add_enumerators(struct lb_dwarf *dwarf, Dwarf_Die *type)
{
	Dwarf_Die child;
	int ret = dwarf_child(type, &child);

	while (!ret) {
		const char *name = dwarf_diename(&child);

		if (++dwarf->n_dies > DIES_MAX)
			return -E2BIG;
		if (name && dwarf_tag(&child) == DW_TAG_enumerator) {
			int err = add_named(dwarf, &child, name, true);

			if (err)
				return err;
		}
		ret = dwarf_siblingof(&child, &child);
	}
	return 0;
}

/* Is @die the type that the marker names, with its member? */
static bool is_marker(const struct lb_dwarf *dwarf, const Dwarf_Die *die,
		      const char *name)
{
	size_t len = strcspn(dwarf->marker, ".");
	uint64_t off, size;

	return !strncmp(name, dwarf->marker, len) && !name[len] &&
	       !walk_path(*die, dwarf->marker + len + 1, &off, &size);
}

/* The children of a unit, or of one that it imports. */
static int add_children(struct lb_dwarf *dwarf, Dwarf_Die *unit, int depth,
			bool *marked)
{
	Dwarf_Die child, imported;
	int ret = dwarf_child(unit, &child);

	while (!ret) {
		const char *name = dwarf_diename(&child);
		int err = 0;

		if (++dwarf->n_dies > DIES_MAX)
			return -E2BIG;
		switch (dwarf_tag(&child)) {
		case DW_TAG_imported_unit:
			if (depth < NEST_MAX &&
			    !follow(&child, DW_AT_import, &imported))
				err = add_children(dwarf, &imported, depth + 1,
						   marked);
			break;
		case DW_TAG_enumeration_type:
			err = add_enumerators(dwarf, &child);
			break;
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
		case DW_TAG_class_type:
		case DW_TAG_typedef:
			if (!name)
				break;
			err = add_named(dwarf, &child, name, false);
			if (!*marked)
				*marked = is_marker(dwarf, &child, name);
			break;
		}
		if (err)
			return err;
		ret = dwarf_siblingof(&child, &child);
	}
	return 0;
}

static int add_units(struct lb_dwarf *dwarf, Dwarf *dw)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die unit;
	uint8_t type;

	while (!dwarf_get_units(dw, cu, &cu, NULL, &type, &unit, NULL)) {
		size_t n = dwarf->n;
		bool marked = false;

		if (type != DW_UT_compile && type != DW_UT_type)
			continue;
		dwarf->any_units = true;
		dwarf->weak = type == DW_UT_type;
		int err = add_children(dwarf, &unit, 0, &marked);

		if (err)
			return err;
		if (marked)
			dwarf->any_marked = true;
		else if (!dwarf->weak)
			dwarf->n = n; /* of something else */
	}
	return 0;
}

static int add_module(Dwfl_Module *module, void **userdata, const char *name,
		      Dwarf_Addr start, void *arg)
{
	struct lb_dwarf *dwarf = arg;
	Dwarf_Addr bias;
	Dwarf *dw = dwfl_module_getdwarf(module, &bias);

	(void)userdata;
	(void)name;
	(void)start;
	if (dw)
		dwarf->err = add_units(dwarf, dw);
	return dwarf->err ? DWARF_CB_ABORT : DWARF_CB_OK;
}

static int by_name(const void *a_addr, const void *b_addr)
{
	const struct named *a = a_addr, *b = b_addr;
	int ret = strcmp(a->name, b->name);

	return ret ? ret : a->index < b->index ? -1 : a->index > b->index;
}

/* ---- opening ---- */

static int find_debuginfo(Dwfl_Module *module, void **userdata,
			  const char *module_name, Dwarf_Addr base,
			  const char *file_name, const char *debuglink_file,
			  GElf_Word debuglink_crc, char **debuginfo_file_name)
{
	const char *path = *userdata;

	if (!path)
		return dwfl_standard_find_debuginfo(
			module, userdata, module_name, base, file_name,
			debuglink_file, debuglink_crc, debuginfo_file_name);
	*debuginfo_file_name = strdup(path);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = find_debuginfo,
	.section_address = dwfl_offline_section_address,
};

static int set_debug_path(Dwfl_Module *module, void **userdata,
			  const char *name, Dwarf_Addr start, void *arg)
{
	struct lb_dwarf *dwarf = arg;

	(void)module;
	(void)name;
	(void)start;
	*userdata = dwarf->debug_path;
	return DWARF_CB_OK;
}

static int report(struct lb_dwarf *dwarf, const char *path)
{
	dwarf->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (dwarf->fd < 0)
		return -errno;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -EOPNOTSUPP;
	dwarf->file = elf_begin(dwarf->fd, ELF_C_READ_MMAP, NULL);
	if (!dwarf->file || (elf_kind(dwarf->file) != ELF_K_ELF &&
			     elf_kind(dwarf->file) != ELF_K_AR))
		return -ENOEXEC;
	dwarf->dwfl = dwfl_begin(&callbacks);
	if (!dwarf->dwfl)
		return -ENOMEM;
	dwfl_report_begin(dwarf->dwfl);

	bool reported = dwfl_report_offline(dwarf->dwfl, "file", path, -1);

	dwfl_report_end(dwarf->dwfl, NULL, NULL);
	return reported ? 0 : -ENOEXEC;
}

int lb_dwarf_open(const char *path, const char *debug_path, const char *marker,
		  struct lb_dwarf **dwarf_ret)
{
	struct lb_dwarf *dwarf = calloc(1, sizeof(*dwarf));
	int err;

	if (!dwarf)
		return -ENOMEM;
	dwarf->fd = -1;
	dwarf->marker = marker;
	err = report(dwarf, path);
	if (!err && debug_path) {
		dwarf->debug_path = strdup(debug_path);
		if (!dwarf->debug_path)
			err = -ENOMEM;
		else
			dwfl_getmodules(dwarf->dwfl, set_debug_path, dwarf, 0);
	}
	if (!err) {
		dwfl_getmodules(dwarf->dwfl, add_module, dwarf, 0);
		err = dwarf->err;
	}
	if (!err && !dwarf->any_marked)
		err = dwarf->any_units ? -ENOENT : -ENODATA;
	if (err) {
		lb_dwarf_free(dwarf);
		return err;
	}
	qsort(dwarf->named, dwarf->n, sizeof(struct named), by_name);
	*dwarf_ret = dwarf;
	return 0;
}

void lb_dwarf_free(struct lb_dwarf *dwarf)
{
	if (!dwarf)
		return;
	dwfl_end(dwarf->dwfl);
	elf_end(dwarf->member);
	elf_end(dwarf->file);
	if (dwarf->fd >= 0)
		close(dwarf->fd);
	free(dwarf->named);
	free(dwarf->debug_path);
	free(dwarf);
}

/* ---- look-up ---- */

/* Index of the first of that name. */
static size_t find_name(const struct lb_dwarf *dwarf, const char *name,
			size_t len)
{
	size_t lo = 0, hi = dwarf->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		/* names with @name as their beginning sort behind it */
		if (strncmp(dwarf->named[mid].name, name, len) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool has_name(const struct lb_dwarf *dwarf, size_t i, const char *name,
		     size_t len)
{
	return i < dwarf->n && !strncmp(dwarf->named[i].name, name, len) &&
	       !dwarf->named[i].name[len];
}

static int member_in(const struct lb_dwarf *dwarf, bool weak, const char *path,
		     uint64_t *off_ret, uint64_t *size_ret)
{
	size_t len = strcspn(path, ".");
	const char *rest = path + len + (path[len] == '.');
	bool found = false;
	int missing = -ENOENT;

	for (size_t i = find_name(dwarf, path, len);
	     has_name(dwarf, i, path, len); i++) {
		const struct named *named = &dwarf->named[i];
		Dwarf_Die type = named->die;
		uint64_t off, size;
		int err;

		if (named->is_enum || named->is_weak != weak || peel(&type) ||
		    !is_struct(&type))
			continue;
		err = walk_path(type, rest, &off, &size);
		if (err) {
			missing = err;
			continue;
		}
		if (found && (off != *off_ret || size != *size_ret))
			return -EEXIST;
		*off_ret = off;
		*size_ret = size;
		found = true;
	}
	return found ? 0 : missing;
}

int lb_dwarf_member(const struct lb_dwarf *dwarf, const char *path,
		    uint64_t *off_ret, uint64_t *size_ret)
{
	int err = member_in(dwarf, false, path, off_ret, size_ret);

	return err == -ENOENT ? member_in(dwarf, true, path, off_ret, size_ret)
			      : err;
}

/* Of a positive value GCC writes the bytes, without room for a sign. */
static int enum_value(Dwarf_Die die, int64_t *value_ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;
	Dwarf_Sword signed_value;

	if (!dwarf_attr(&die, DW_AT_const_value, &attr))
		return -EBADMSG;
	switch (dwarf_whatform(&attr)) {
	case DW_FORM_sdata:
	case DW_FORM_implicit_const:
		if (dwarf_formsdata(&attr, &signed_value))
			return -EBADMSG;
		*value_ret = signed_value;
		return 0;
	default:
		if (dwarf_formudata(&attr, &value))
			return -EBADMSG;
		*value_ret = (int64_t)value;
		return 0;
	}
}

static int enum_in(const struct lb_dwarf *dwarf, bool weak, const char *name,
		   int64_t *value_ret)
{
	size_t len = strlen(name);
	bool found = false;

	for (size_t i = find_name(dwarf, name, len);
	     has_name(dwarf, i, name, len); i++) {
		const struct named *named = &dwarf->named[i];
		int64_t value;
		int err;

		if (!named->is_enum || named->is_weak != weak)
			continue;
		err = enum_value(named->die, &value);
		if (err)
			return err;
		if (found && value != *value_ret)
			return -EEXIST;
		*value_ret = value;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

int lb_dwarf_enum(const struct lb_dwarf *dwarf, const char *name,
		  int64_t *value_ret)
{
	int err = enum_in(dwarf, false, name, value_ret);

	return err == -ENOENT ? enum_in(dwarf, true, name, value_ret) : err;
}

/* ---- the VM's frame ---- */

static bool section_named(Elf *elf, const char *name, GElf_Shdr *shdr_ret,
			  Elf_Scn **scn_ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return false;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *its_name;

		if (!gelf_getshdr(scn, shdr_ret))
			continue;
		its_name = elf_strptr(elf, names, shdr_ret->sh_name);
		if (its_name && !strcmp(its_name, name)) {
			*scn_ret = scn;
			return true;
		}
	}
	return false;
}

/* The one row of an FDE; registers by their DWARF numbers, slots from CFA. */
struct frame_row {
	uint64_t cfa_reg;
	uint64_t cfa_off;
	uint64_t slots[17]; /* in units of the data alignment; 0: not saved */
};

/* Instructions of a CIE or FDE. Return: false on any that starts a new row. */
static bool run_program(const uint8_t *begin, const uint8_t *end,
			struct frame_row *row)
{
	struct lb_buf buf;

	lb_buf_init(&buf, begin, (size_t)(end - begin), 0);
	while (lb_buf_left(&buf) && !buf.bad) {
		uint8_t op = lb_buf_u8(&buf);

		if ((op & 0xc0) == DW_CFA_offset) {
			uint64_t slot = lb_buf_uleb(&buf);

			if ((op & 0x3f) > 16)
				return false;
			row->slots[op & 0x3f] = slot;
		} else if (op == DW_CFA_def_cfa) {
			row->cfa_reg = lb_buf_uleb(&buf);
			row->cfa_off = lb_buf_uleb(&buf);
		} else if (op == DW_CFA_def_cfa_offset) {
			row->cfa_off = lb_buf_uleb(&buf);
		} else if (op != DW_CFA_nop) {
			return false;
		}
	}
	return !buf.bad;
}

/*
 * One FDE of .debug_frame: the VM's has a single row, see helpers/luajit. In an
 * object file its begin is not relocated yet, but its size is there.
 */
static bool is_vm_fde(const Dwarf_CFI_Entry *cie, const Dwarf_CFI_Entry *fde,
		      struct lb_dwarf_vm *vm)
{
	const uint8_t *begin = fde->fde.start, *end = fde->fde.end;
	struct frame_row row = { 0 };

	if (!dwarf_cfi_cie_p(cie) || cie->cie.data_alignment_factor != -8 ||
	    end - begin < 16 ||
	    !run_program(cie->cie.initial_instructions,
			 cie->cie.initial_instructions_end, &row) ||
	    !run_program(begin + 16, end, &row))
		return false;
	memcpy(&vm->size, begin + 8, sizeof(vm->size));
	vm->cframe_size = (uint32_t)row.cfa_off;
	return row.cfa_reg == 7 && (row.cfa_off == 80 || row.cfa_off == 96) &&
	       row.slots[6] == 2 && row.slots[3] == 3 && row.slots[15] == 4 &&
	       row.slots[14] == 5 && vm->size > 8000 && vm->size < 1 << 20;
}

static bool vm_of_elf(Elf *elf, struct lb_dwarf_vm *vm_ret)
{
	struct lb_dwarf_vm vm = { 0 };
	GElf_Ehdr ehdr;
	GElf_Shdr shdr;
	Elf_Scn *scn;
	Elf_Data *data;
	Dwarf_Off off = 0, next = 0, cie_next;
	Dwarf_CFI_Entry entry, cie;
	bool found = false;

	if (!gelf_getehdr(elf, &ehdr) || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_machine != EM_X86_64 ||
	    !section_named(elf, ".debug_frame", &shdr, &scn))
		return false;
	if (shdr.sh_flags & SHF_COMPRESSED && elf_compress(scn, 0, 0) < 0)
		return false;
	data = elf_rawdata(scn, NULL);
	if (!data || !data->d_buf)
		return false;
	for (;;) {
		int ret = dwarf_next_cfi(ehdr.e_ident, data, false, off, &next,
					 &entry);

		if (ret > 0 || next <= off)
			break;
		off = next;
		if (ret || dwarf_cfi_cie_p(&entry) ||
		    dwarf_next_cfi(ehdr.e_ident, data, false,
				   entry.fde.CIE_pointer, &cie_next, &cie) ||
		    !is_vm_fde(&cie, &entry, &vm))
			continue;
		if (found)
			return false; /* two of them */
		found = true;
		*vm_ret = vm;
	}
	/* the assembler's object holds the VM from the begin of its .text */
	if (found && ehdr.e_type == ET_REL &&
	    section_named(elf, ".text", &shdr, &scn) &&
	    shdr.sh_type == SHT_PROGBITS) {
		data = elf_rawdata(scn, NULL);
		if (data && data->d_buf && data->d_size >= vm_ret->size)
			vm_ret->code = data->d_buf;
	}
	return found;
}

int lb_dwarf_vm(struct lb_dwarf *dwarf, struct lb_dwarf_vm *vm_ret)
{
	Elf_Cmd cmd = ELF_C_READ_MMAP;
	Elf *member;

	if (elf_kind(dwarf->file) == ELF_K_ELF)
		return vm_of_elf(dwarf->file, vm_ret) ? 0 : -ENOENT;
	while (!dwarf->member &&
	       (member = elf_begin(dwarf->fd, cmd, dwarf->file))) {
		if (elf_kind(member) == ELF_K_ELF &&
		    vm_of_elf(member, vm_ret)) {
			dwarf->member = member;
			return 0;
		}
		cmd = elf_next(member);
		elf_end(member);
	}
	return -ENOENT;
}
