/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ELF file as bytes: headers, segments, sections, notes, symbol tables.
 *
 * The file is not mapped: somebody may truncate it (a package upgrade that
 * writes in place), and a touch past the new end would be a SIGBUS in our
 * process. Memory of its size is reserved, and each part is read with pread()
 * when it is first asked for.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf.h"

#define FILE_SIZE_MAX	 (UINT64_C(8) << 30)
#define PROG_HEADERS_MAX 4096
#define PART_SHIFT	 16 /* bytes read at a time: 64 KiB */
#define PAGE_SIZE_MASK	 UINT64_C(4095)

struct lb_elf {
	char *name;
	uint8_t *data;
	uint64_t size;	   /* bytes */
	uint8_t *got_part; /* one flag for each part; NULL: all is in memory */
	int fd;		   /* where parts come from, -1: all is in memory */
	unsigned int type;
	struct lb_segment *segments;
	size_t n_segments;
	uint64_t ph_off;
	size_t n_ph;
	uint64_t sh_off;
	size_t n_sections;
	size_t shstrndx;
};

static bool read_part(const struct lb_elf *elf, uint64_t part)
{
	uint64_t off = part << PART_SHIFT;
	uint64_t end = off + (UINT64_C(1) << PART_SHIFT);

	if (end > elf->size)
		end = elf->size;
	while (off < end) {
		ssize_t n =
			pread(elf->fd, elf->data + off, end - off, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		off += (uint64_t)n;
	}
	elf->got_part[part] = 1;
	return true;
}

/* @size bytes of the file at @off, or NULL when they are not all there. */
static const uint8_t *file_data(const struct lb_elf *elf, uint64_t off,
				uint64_t size)
{
	if (off > elf->size || size > elf->size - off)
		return NULL;
	if (!elf->got_part || !size)
		return elf->data + off;
	for (uint64_t part = off >> PART_SHIFT;
	     part <= (off + size - 1) >> PART_SHIFT; part++) {
		if (!elf->got_part[part] && !read_part(elf, part))
			return NULL;
	}
	return elf->data + off;
}

static bool file_copy(const struct lb_elf *elf, uint64_t off, void *out,
		      size_t size)
{
	const uint8_t *data = file_data(elf, off, size);

	if (!data)
		return false;
	memcpy(out, data, size);
	return true;
}

static bool read_shdr(const struct lb_elf *elf, size_t index, Elf64_Shdr *shdr)
{
	return file_copy(elf, elf->sh_off + index * sizeof(*shdr), shdr,
			 sizeof(*shdr));
}

static bool read_phdr(const struct lb_elf *elf, size_t index, Elf64_Phdr *phdr)
{
	return index < elf->n_ph &&
	       file_copy(elf, elf->ph_off + index * sizeof(*phdr), phdr,
			 sizeof(*phdr));
}

/* A table that does not fit is no table: the program headers are enough. */
static void find_sections(struct lb_elf *elf, const Elf64_Ehdr *ehdr)
{
	Elf64_Shdr first;
	uint64_t n = ehdr->e_shnum;

	elf->sh_off = ehdr->e_shoff;
	elf->shstrndx = ehdr->e_shstrndx;
	if (!ehdr->e_shoff || ehdr->e_shentsize != sizeof(first) ||
	    !read_shdr(elf, 0, &first))
		return;
	if (!n) /* SHN_LORESERVE sections or more */
		n = first.sh_size;
	if (elf->shstrndx == SHN_XINDEX)
		elf->shstrndx = first.sh_link;
	if (n > (elf->size - elf->sh_off) / sizeof(first))
		return;
	elf->n_sections = n;
}

static int find_segments(struct lb_elf *elf, const Elf64_Ehdr *ehdr)
{
	Elf64_Phdr phdr;
	Elf64_Shdr first;

	elf->ph_off = ehdr->e_phoff;
	elf->n_ph = ehdr->e_phnum;
	if (ehdr->e_phnum == PN_XNUM && elf->n_sections &&
	    read_shdr(elf, 0, &first))
		elf->n_ph = first.sh_info;
	if (!elf->n_ph)
		return 0;
	if (ehdr->e_phentsize != sizeof(phdr))
		return -EBADMSG;
	if (elf->n_ph > PROG_HEADERS_MAX)
		return -E2BIG;
	if (!file_data(elf, elf->ph_off, elf->n_ph * sizeof(phdr)))
		return -EBADMSG;
	elf->segments = calloc(elf->n_ph, sizeof(*elf->segments));
	if (!elf->segments)
		return -ENOMEM;
	for (size_t i = 0; i < elf->n_ph; i++) {
		if (!read_phdr(elf, i, &phdr) || phdr.p_type != PT_LOAD)
			continue;
		elf->segments[elf->n_segments++] = (struct lb_segment){
			.off = phdr.p_offset,
			.vaddr = phdr.p_vaddr,
			.filesz = phdr.p_filesz,
			.memsz = phdr.p_memsz,
			.flags = phdr.p_flags,
		};
	}
	return 0;
}

static int parse_headers(struct lb_elf *elf)
{
	Elf64_Ehdr ehdr;

	if (elf->size < SELFMAG || !file_copy(elf, 0, &ehdr, SELFMAG) ||
	    memcmp(ehdr.e_ident, ELFMAG, SELFMAG))
		return -ENOEXEC;
	if (!file_copy(elf, 0, &ehdr, EI_NIDENT))
		return -EBADMSG;
	if (ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB)
		return -EOPNOTSUPP;
	if (!file_copy(elf, 0, &ehdr, sizeof(ehdr)))
		return -EBADMSG;
	if (ehdr.e_machine != EM_X86_64)
		return -EOPNOTSUPP;
	elf->type = ehdr.e_type;
	find_sections(elf, &ehdr);
	return find_segments(elf, &ehdr);
}

static int finish_open(struct lb_elf *elf, struct lb_elf **elf_ret)
{
	int err = parse_headers(elf);

	if (err) {
		lb_elf_free(elf);
		return err;
	}
	*elf_ret = elf;
	return 0;
}

static struct lb_elf *new_elf(const char *name, uint64_t size)
{
	struct lb_elf *elf = calloc(1, sizeof(*elf));

	if (!elf)
		return NULL;
	elf->fd = -1;
	elf->size = size;
	elf->name = strdup(name);
	if (elf->name)
		return elf;
	free(elf);
	return NULL;
}

int lb_elf_open_fd(int fd, const char *name, struct lb_elf **elf_ret)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < 1)
		return -ENOEXEC;
	if ((uint64_t)st.st_size > FILE_SIZE_MAX)
		return -E2BIG;

	struct lb_elf *elf = new_elf(name, (uint64_t)st.st_size);

	if (!elf)
		return -ENOMEM;
	elf->got_part = calloc((elf->size >> PART_SHIFT) + 1, 1);
	elf->data = mmap(NULL, elf->size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (elf->data == MAP_FAILED)
		elf->data = NULL;
	if (!elf->got_part || !elf->data) {
		lb_elf_free(elf);
		return -ENOMEM;
	}
	elf->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (elf->fd < 0) {
		int err = -errno;

		lb_elf_free(elf);
		return err;
	}
	return finish_open(elf, elf_ret);
}

int lb_elf_open_mem(const void *data, size_t size, const char *name,
		    struct lb_elf **elf_ret)
{
	struct lb_elf *elf = new_elf(name, size);

	if (!elf)
		return -ENOMEM;
	elf->data = malloc(size ? size : 1);
	if (!elf->data) {
		lb_elf_free(elf);
		return -ENOMEM;
	}
	if (size)
		memcpy(elf->data, data, size);
	return finish_open(elf, elf_ret);
}

void lb_elf_free(struct lb_elf *elf)
{
	if (!elf)
		return;
	if (elf->got_part) {
		if (elf->data)
			munmap(elf->data, elf->size);
	} else {
		free(elf->data);
	}
	if (elf->fd >= 0)
		close(elf->fd);
	free(elf->got_part);
	free(elf->segments);
	free(elf->name);
	free(elf);
}

const char *lb_elf_name(const struct lb_elf *elf)
{
	return elf->name;
}

uint64_t lb_elf_size(const struct lb_elf *elf)
{
	return elf->size;
}

unsigned int lb_elf_type(const struct lb_elf *elf)
{
	return elf->type;
}

size_t lb_elf_segments(const struct lb_elf *elf,
		       const struct lb_segment **segments_ret)
{
	*segments_ret = elf->segments;
	return elf->n_segments;
}

/*
 * The kernel maps whole pages, so one page of the file can belong to two
 * segments (lld packs them). Higher is better; 0 is no match.
 */
static int bias_score(const struct lb_segment *segment, uint64_t off)
{
	uint64_t first = segment->off & ~PAGE_SIZE_MASK;

	if (off < first ||
	    off - first >= segment->filesz + (segment->off - first))
		return 0;
	return 1 + (segment->flags & PF_X ? 2 : 0) + (off == first);
}

int lb_elf_bias(const struct lb_elf *elf, uint64_t start, uint64_t off,
		uint64_t *bias_ret)
{
	const struct lb_segment *best = NULL;
	int best_score = 0;

	for (size_t i = 0; i < elf->n_segments; i++) {
		int score = bias_score(&elf->segments[i], off);

		if (score > best_score) {
			best = &elf->segments[i];
			best_score = score;
		}
	}
	if (!best)
		return -ENOENT;
	*bias_ret = start - (off - best->off + best->vaddr);
	return 0;
}

size_t lb_elf_n_sections(const struct lb_elf *elf)
{
	return elf->n_sections;
}

static const char *section_name(const struct lb_elf *elf, uint32_t off)
{
	Elf64_Shdr strtab;

	if (elf->shstrndx >= elf->n_sections ||
	    !read_shdr(elf, elf->shstrndx, &strtab) || off >= strtab.sh_size)
		return "";

	const uint8_t *names = file_data(elf, strtab.sh_offset, strtab.sh_size);

	if (!names || !memchr(names + off, 0, strtab.sh_size - off))
		return "";
	return (const char *)names + off;
}

int lb_elf_section_at(const struct lb_elf *elf, size_t index,
		      struct lb_section *section_ret)
{
	Elf64_Shdr shdr;
	const uint8_t *data = NULL;

	if (index >= elf->n_sections || !read_shdr(elf, index, &shdr))
		return -ENODATA;
	if (shdr.sh_type != SHT_NOBITS && shdr.sh_type != SHT_NULL) {
		data = file_data(elf, shdr.sh_offset, shdr.sh_size);
		if (!data)
			return -EBADMSG;
	}
	*section_ret = (struct lb_section){
		.name = section_name(elf, shdr.sh_name),
		.type = shdr.sh_type,
		.flags = shdr.sh_flags,
		.vaddr = shdr.sh_addr,
		.off = shdr.sh_offset,
		.size = shdr.sh_size,
		.data = data,
		.link = shdr.sh_link,
		.entsize = shdr.sh_entsize,
	};
	return 0;
}

int lb_elf_section(const struct lb_elf *elf, const char *name,
		   struct lb_section *section_ret)
{
	Elf64_Shdr shdr;

	for (size_t i = 1; i < elf->n_sections; i++) {
		if (read_shdr(elf, i, &shdr) &&
		    !strcmp(section_name(elf, shdr.sh_name), name))
			return lb_elf_section_at(elf, i, section_ret);
	}
	return -ENODATA;
}

/* All bytes of the file from @vaddr to the end of its segment. */
static const uint8_t *segment_rest(const struct lb_elf *elf, uint64_t vaddr,
				   uint64_t *size_ret)
{
	for (size_t i = 0; i < elf->n_segments; i++) {
		const struct lb_segment *segment = &elf->segments[i];
		uint64_t in_segment = vaddr - segment->vaddr;
		uint64_t off;

		if (vaddr < segment->vaddr || in_segment >= segment->filesz ||
		    __builtin_add_overflow(segment->off, in_segment, &off) ||
		    off >= elf->size)
			continue;
		*size_ret = segment->filesz - in_segment;
		if (*size_ret > elf->size - off)
			*size_ret = elf->size - off;
		return elf->data + off;
	}
	return NULL;
}

const uint8_t *lb_elf_vaddr_data(const struct lb_elf *elf, uint64_t vaddr,
				 uint64_t size)
{
	uint64_t rest;
	const uint8_t *data = segment_rest(elf, vaddr, &rest);

	if (!data || size > rest)
		return NULL;
	return file_data(elf, (uint64_t)(data - elf->data), size);
}

static bool find_phdr(const struct lb_elf *elf, uint32_t type, Elf64_Phdr *phdr)
{
	for (size_t i = 0; i < elf->n_ph; i++) {
		if (read_phdr(elf, i, phdr) && phdr->p_type == type)
			return true;
	}
	return false;
}

/*
 * Encodings that linkers write into .eh_frame_hdr: 4 bytes, signed, relative
 * to the field (pcrel) or to the header (datarel).
 */
enum {
	EH_UDATA4 = 0x03,
	EH_PCREL_SDATA4 = 0x1b,
	EH_DATAREL_SDATA4 = 0x3b,
};

/*
 * The header names the begin of .eh_frame but not its end. Its table has all
 * FDEs, so the end of the last one is the end of what is of use.
 */
static int eh_frame_by_hdr(const struct lb_elf *elf,
			   struct lb_section *section_ret)
{
	Elf64_Phdr phdr;

	if (!find_phdr(elf, PT_GNU_EH_FRAME, &phdr))
		return -ENODATA;

	const uint8_t *hdr = lb_elf_vaddr_data(elf, phdr.p_vaddr, phdr.p_memsz);
	struct lb_buf buf;

	if (!hdr)
		return -EBADMSG;
	lb_buf_init(&buf, hdr, phdr.p_memsz, phdr.p_vaddr);
	if (lb_buf_u8(&buf) != 1 || lb_buf_u8(&buf) != EH_PCREL_SDATA4 ||
	    lb_buf_u8(&buf) != EH_UDATA4 ||
	    lb_buf_u8(&buf) != EH_DATAREL_SDATA4)
		return buf.bad ? -EBADMSG : -EOPNOTSUPP;

	uint64_t field_vaddr = lb_buf_vaddr(&buf);
	uint64_t start = field_vaddr + (uint64_t)(int32_t)lb_buf_u32(&buf);
	uint32_t n_fdes = lb_buf_u32(&buf);
	uint64_t last = start;

	for (uint32_t i = 0; i < n_fdes && !buf.bad; i++) {
		lb_buf_skip(&buf, 4);

		uint64_t fde =
			phdr.p_vaddr + (uint64_t)(int32_t)lb_buf_u32(&buf);

		if (!buf.bad && fde > last)
			last = fde;
	}

	const uint8_t *length = lb_elf_vaddr_data(elf, last, 4);
	uint32_t last_size;

	if (!length)
		return -EBADMSG;
	memcpy(&last_size, length, sizeof(last_size));

	uint64_t size = last - start + 4 + last_size;
	const uint8_t *data = lb_elf_vaddr_data(elf, start, size);

	if (!data)
		return -EBADMSG;
	*section_ret = (struct lb_section){
		.name = ".eh_frame",
		.type = SHT_PROGBITS,
		.flags = SHF_ALLOC,
		.vaddr = start,
		.off = (uint64_t)(data - elf->data),
		.size = size,
		.data = data,
	};
	return 0;
}

int lb_elf_eh_frame(const struct lb_elf *elf, struct lb_section *section_ret)
{
	struct lb_section section;
	int err = lb_elf_section(elf, ".eh_frame", &section);

	if (!err && section.data && section.size) {
		*section_ret = section;
		return 0;
	}
	/* a debug file has the section without its bytes */
	if (!err && section.type == SHT_NOBITS)
		return -ENODATA;
	return eh_frame_by_hdr(elf, section_ret);
}

static int build_id_in_notes(const uint8_t *data, uint64_t size, uint64_t align,
			     uint8_t *id_ret, size_t *len_ret)
{
	uint64_t mask = align == 8 ? 7 : 3;
	struct lb_buf buf;

	lb_buf_init(&buf, data, size, 0);
	while (lb_buf_left(&buf) >= sizeof(Elf64_Nhdr)) {
		uint64_t name_size = lb_buf_u32(&buf);
		uint64_t desc_size = lb_buf_u32(&buf);
		uint32_t type = lb_buf_u32(&buf);
		struct lb_buf name = lb_buf_sub(&buf, name_size);

		/* the padding after the last note may be missing */
		lb_buf_skip(&buf, -(uint64_t)(buf.pos - buf.start) & mask);

		struct lb_buf desc = lb_buf_sub(&buf, desc_size);

		if (buf.bad)
			break;
		if (type == NT_GNU_BUILD_ID && name_size == 4 &&
		    !memcmp(name.pos, "GNU", 4) && desc_size > 0 &&
		    desc_size <= LB_BUILD_ID_MAX) {
			memcpy(id_ret, desc.pos, desc_size);
			*len_ret = desc_size;
			return 0;
		}
		lb_buf_skip(&buf, -(uint64_t)(buf.pos - buf.start) & mask);
	}
	return -ENODATA;
}

int lb_elf_build_id(const struct lb_elf *elf, uint8_t *id_ret, size_t *len_ret)
{
	Elf64_Shdr shdr;
	Elf64_Phdr phdr;

	/* sections first: segments of a separate debug file hold nothing */
	for (size_t i = 1; i < elf->n_sections; i++) {
		if (!read_shdr(elf, i, &shdr) || shdr.sh_type != SHT_NOTE)
			continue;

		const uint8_t *data =
			file_data(elf, shdr.sh_offset, shdr.sh_size);

		if (data &&
		    !build_id_in_notes(data, shdr.sh_size, shdr.sh_addralign,
				       id_ret, len_ret))
			return 0;
	}
	for (size_t i = 0; i < elf->n_ph; i++) {
		if (!read_phdr(elf, i, &phdr) || phdr.p_type != PT_NOTE)
			continue;

		const uint8_t *data =
			file_data(elf, phdr.p_offset, phdr.p_filesz);

		if (data && !build_id_in_notes(data, phdr.p_filesz,
					       phdr.p_align, id_ret, len_ret))
			return 0;
	}
	return -ENODATA;
}

struct sym_table {
	const uint8_t *syms;
	uint64_t n_syms;
	const char *names;
	uint64_t names_size; /* bytes */
};

static int table_by_section(const struct lb_elf *elf, const char *name,
			    struct sym_table *table_ret)
{
	struct lb_section syms, names;
	int err = lb_elf_section(elf, name, &syms);

	if (err)
		return err;
	if (!syms.data)
		return -ENODATA;
	if (syms.entsize != sizeof(Elf64_Sym) ||
	    lb_elf_section_at(elf, syms.link, &names) || !names.data)
		return -EBADMSG;
	*table_ret = (struct sym_table){
		.syms = syms.data,
		.n_syms = syms.size / sizeof(Elf64_Sym),
		.names = (const char *)names.data,
		.names_size = names.size,
	};
	return 0;
}

/* DT_HASH: nbucket, nchain, ...; there is one chain entry for each symbol. */
static uint64_t n_syms_by_hash(const struct lb_elf *elf, uint64_t vaddr)
{
	const uint8_t *data = lb_elf_vaddr_data(elf, vaddr, 8);
	uint32_t n_chain;

	if (!data)
		return 0;
	memcpy(&n_chain, data + 4, sizeof(n_chain));
	return n_chain;
}

/*
 * DT_GNU_HASH: the chain of the bucket with the highest index ends at the last
 * symbol; bit 0 of a chain word marks the end of its chain.
 */
static uint64_t n_syms_by_gnu_hash(const struct lb_elf *elf, uint64_t vaddr)
{
	uint64_t size;
	const uint8_t *data = segment_rest(elf, vaddr, &size);
	struct lb_buf buf;

	if (!data || !file_data(elf, (uint64_t)(data - elf->data), size))
		return 0;
	lb_buf_init(&buf, data, size, vaddr);

	uint32_t n_buckets = lb_buf_u32(&buf);
	uint32_t first_sym = lb_buf_u32(&buf);
	uint32_t n_bloom = lb_buf_u32(&buf);
	uint32_t last = 0;

	lb_buf_skip(&buf, 4 + 8 * (uint64_t)n_bloom);
	for (uint32_t i = 0; i < n_buckets && !buf.bad; i++) {
		uint32_t sym = lb_buf_u32(&buf);

		if (sym > last)
			last = sym;
	}
	if (buf.bad || last < first_sym)
		return buf.bad ? 0 : first_sym;
	lb_buf_skip(&buf, 4 * (uint64_t)(last - first_sym));
	while (!(lb_buf_u32(&buf) & 1)) {
		if (buf.bad)
			return 0;
		last++;
	}
	return (uint64_t)last + 1;
}

static int table_by_dynamic(const struct lb_elf *elf,
			    struct sym_table *table_ret)
{
	Elf64_Phdr phdr;
	Elf64_Dyn dyn;
	uint64_t symtab = 0, strtab = 0, strsz = 0, hash = 0, gnu_hash = 0;

	if (!find_phdr(elf, PT_DYNAMIC, &phdr))
		return -ENODATA;
	for (uint64_t off = 0; off + sizeof(dyn) <= phdr.p_filesz;
	     off += sizeof(dyn)) {
		if (!file_copy(elf, phdr.p_offset + off, &dyn, sizeof(dyn)))
			return -EBADMSG;
		if (dyn.d_tag == DT_NULL)
			break;
		if (dyn.d_tag == DT_SYMTAB)
			symtab = dyn.d_un.d_ptr;
		else if (dyn.d_tag == DT_STRTAB)
			strtab = dyn.d_un.d_ptr;
		else if (dyn.d_tag == DT_STRSZ)
			strsz = dyn.d_un.d_val;
		else if (dyn.d_tag == DT_HASH)
			hash = dyn.d_un.d_ptr;
		else if (dyn.d_tag == DT_GNU_HASH)
			gnu_hash = dyn.d_un.d_ptr;
	}
	if (!symtab || !strtab || !(hash || gnu_hash))
		return -ENODATA;

	uint64_t n_syms = hash ? n_syms_by_hash(elf, hash)
			       : n_syms_by_gnu_hash(elf, gnu_hash);
	const uint8_t *syms =
		lb_elf_vaddr_data(elf, symtab, n_syms * sizeof(Elf64_Sym));
	const uint8_t *names = lb_elf_vaddr_data(elf, strtab, strsz);

	if (!n_syms || !syms || !names)
		return -EBADMSG;
	*table_ret = (struct sym_table){
		.syms = syms,
		.n_syms = n_syms,
		.names = (const char *)names,
		.names_size = strsz,
	};
	return 0;
}

static int each_in_table(const struct sym_table *table, lb_elf_sym_fn fn,
			 void *arg)
{
	for (uint64_t i = 0; i < table->n_syms; i++) {
		Elf64_Sym raw;

		memcpy(&raw, table->syms + i * sizeof(raw), sizeof(raw));
		if (!raw.st_name || raw.st_name >= table->names_size ||
		    !memchr(table->names + raw.st_name, 0,
			    table->names_size - raw.st_name) ||
		    !table->names[raw.st_name])
			continue;

		struct lb_elf_sym sym = {
			.name = table->names + raw.st_name,
			.vaddr = raw.st_value,
			.size = raw.st_size,
			.type = ELF64_ST_TYPE(raw.st_info),
			.bind = ELF64_ST_BIND(raw.st_info),
			.shndx = raw.st_shndx,
		};
		int ret = fn(arg, &sym);

		if (ret)
			return ret;
	}
	return 0;
}

int lb_elf_each_sym(const struct lb_elf *elf, const char *table_name,
		    lb_elf_sym_fn fn, void *arg)
{
	struct sym_table table;
	int err = table_by_section(elf, table_name, &table);

	if (err == -ENODATA && !strcmp(table_name, ".dynsym"))
		err = table_by_dynamic(elf, &table);
	if (err)
		return err;
	return each_in_table(&table, fn, arg);
}

struct dynsym_query {
	const char *name;
	uint64_t vaddr;
};

static int match_dynsym(void *arg, const struct lb_elf_sym *sym)
{
	struct dynsym_query *query = arg;

	if (sym->shndx == SHN_UNDEF || strcmp(sym->name, query->name))
		return 0;
	query->vaddr = sym->vaddr;
	return 1;
}

int lb_elf_dynsym(const struct lb_elf *elf, const char *name,
		  uint64_t *vaddr_ret)
{
	struct dynsym_query query = { .name = name };

	if (lb_elf_each_sym(elf, ".dynsym", match_dynsym, &query) != 1)
		return -ENOENT;
	*vaddr_ret = query.vaddr;
	return 0;
}
