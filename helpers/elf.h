/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ELF file, 64-bit little endian, as bytes: headers, segments, sections,
 * notes, symbol tables. Everything is checked against the size of the file.
 * Specification: System V ABI (gABI), chapters 4 and 5; gnu-gabi notes.
 */
#ifndef LB_ELF_H
#define LB_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define LB_BUILD_ID_MAX 64

struct lb_elf;

struct lb_segment { /* a PT_LOAD */
	uint64_t off;
	uint64_t vaddr;
	uint64_t filesz;
	uint64_t memsz;
	uint32_t flags; /* PF_X ... */
};

struct lb_section {
	const char *name;
	uint32_t type;
	uint64_t flags;
	uint64_t vaddr;
	uint64_t off;
	uint64_t size;	     /* bytes */
	const uint8_t *data; /* NULL for SHT_NOBITS */
	uint32_t link;
	uint64_t entsize;
};

/**
 * lb_elf_open_fd() - take a file and check its headers
 * @fd: open for reading; the caller still owns it. A duplicate is kept until
 * lb_elf_free(), since parts of the file are read when they are asked for.
 * @name: for messages; copied
 * Return: 0, -ENOEXEC (not ELF), -EOPNOTSUPP (32-bit, big endian, other CPU),
 * -EBADMSG (headers out of bounds), -E2BIG, -ENOMEM, or what fcntl gave.
 */
int lb_elf_open_fd(int fd, const char *name, struct lb_elf **elf_ret);
/** lb_elf_open_mem() - the same for an image in memory; @data is copied. */
int lb_elf_open_mem(const void *data, size_t size, const char *name,
		    struct lb_elf **elf_ret);
void lb_elf_free(struct lb_elf *elf);

const char *lb_elf_name(const struct lb_elf *elf);
uint64_t lb_elf_size(const struct lb_elf *elf);
/** e_type: ET_EXEC, ET_DYN ... */
unsigned int lb_elf_type(const struct lb_elf *elf);
size_t lb_elf_segments(const struct lb_elf *elf,
		       const struct lb_segment **segments_ret);
/**
 * lb_elf_bias() - load bias of an executable mapping of this file
 * @start: address of the mapping, @off: its file offset (both from maps)
 * Return: 0, -ENOENT when no PT_LOAD contains @off.
 */
int lb_elf_bias(const struct lb_elf *elf, uint64_t start, uint64_t off,
		uint64_t *bias_ret);
/**
 * Section by name, its bytes read. -ENODATA if absent (or the section table is
 * unusable), -EBADMSG when its bytes are not all in the file.
 */
int lb_elf_section(const struct lb_elf *elf, const char *name,
		   struct lb_section *section_ret);
/** Section by index, for sh_link. -ENODATA if out of range, -EBADMSG. */
int lb_elf_section_at(const struct lb_elf *elf, size_t index,
		      struct lb_section *section_ret);
size_t lb_elf_n_sections(const struct lb_elf *elf);
/** .eh_frame by section header, else through PT_GNU_EH_FRAME. -ENODATA. */
int lb_elf_eh_frame(const struct lb_elf *elf, struct lb_section *section_ret);
/** @size bytes of a loaded segment at @vaddr; NULL when not all in the file. */
const uint8_t *lb_elf_vaddr_data(const struct lb_elf *elf, uint64_t vaddr,
				 uint64_t size);
/** GNU build ID. @id_ret has room for LB_BUILD_ID_MAX. -ENODATA. */
int lb_elf_build_id(const struct lb_elf *elf, uint8_t *id_ret, size_t *len_ret);

struct lb_elf_sym {
	const char *name;
	uint64_t vaddr;
	uint64_t size;	   /* bytes; 0 is unknown */
	unsigned int type; /* STT_* */
	unsigned int bind; /* STB_* */
	unsigned int shndx;
};

/** Return non-zero to stop. @sym is valid during the call. */
typedef int (*lb_elf_sym_fn)(void *arg, const struct lb_elf_sym *sym);
/**
 * lb_elf_each_sym() - call @fn for each named symbol
 * @table: ".symtab" or ".dynsym". A .dynsym is also found through PT_DYNAMIC
 * (DT_SYMTAB, with DT_HASH or DT_GNU_HASH for its length) when there is no
 * section table.
 * Return: 0, what @fn returned, -ENODATA (no such table), -EBADMSG.
 */
int lb_elf_each_sym(const struct lb_elf *elf, const char *table,
		    lb_elf_sym_fn fn, void *arg);
/** vaddr of a defined dynamic symbol by name. -ENOENT. */
int lb_elf_dynsym(const struct lb_elf *elf, const char *name,
		  uint64_t *vaddr_ret);

#endif
