/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers for fixtures: bytes, ELF images, .eh_frame records. An image has one
 * PT_LOAD that covers it, with vaddr = file offset, so that a vaddr can be
 * chosen by choosing an offset.
 */
#ifndef LB_WRITE_H
#define LB_WRITE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct wr {
	uint8_t *data;
	size_t size;
};

static inline void wr_at(struct wr *wr, size_t off, const void *data,
			 size_t size)
{
	if (off + size > wr->size) {
		wr->data = realloc(wr->data, off + size);
		if (!wr->data)
			abort();
		memset(wr->data + wr->size, 0, off + size - wr->size);
		wr->size = off + size;
	}
	if (size)
		memcpy(wr->data + off, data, size);
}

static inline void wr_bytes(struct wr *wr, const void *data, size_t size)
{
	wr_at(wr, wr->size, data, size);
}

static inline void wr_u8(struct wr *wr, uint8_t value)
{
	wr_bytes(wr, &value, sizeof(value));
}

static inline void wr_u16(struct wr *wr, uint16_t value)
{
	wr_bytes(wr, &value, sizeof(value));
}

static inline void wr_u32(struct wr *wr, uint32_t value)
{
	wr_bytes(wr, &value, sizeof(value));
}

static inline void wr_u64(struct wr *wr, uint64_t value)
{
	wr_bytes(wr, &value, sizeof(value));
}

static inline void wr_uleb(struct wr *wr, uint64_t value)
{
	do {
		wr_u8(wr, (value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
}

static inline void wr_sleb(struct wr *wr, int64_t value)
{
	for (;;) {
		uint8_t byte = value & 0x7f;

		value >>= 7;
		if ((value == 0 && !(byte & 0x40)) ||
		    (value == -1 && byte & 0x40)) {
			wr_u8(wr, byte);
			return;
		}
		wr_u8(wr, byte | 0x80);
	}
}

static inline void wr_free(struct wr *wr)
{
	free(wr->data);
	wr->data = NULL;
	wr->size = 0;
}

/* ---- ELF ---- */

#define WR_HEADERS 0x400 /* bytes kept for the ELF and program headers */

struct wr_elf {
	struct wr out;
	Elf64_Shdr shdrs[16];
	size_t n_shdrs; /* the first one is SHT_NULL */
	Elf64_Phdr phdrs[8];
	size_t n_phdrs;
	struct wr names;
};

static inline void wr_elf_init(struct wr_elf *elf)
{
	memset(elf, 0, sizeof(*elf));
	wr_at(&elf->out, 0, NULL, 0);
	wr_at(&elf->out, WR_HEADERS - 1, "", 1);
	wr_u8(&elf->names, 0);
	elf->n_shdrs = 1;
	elf->n_phdrs = 1; /* PT_LOAD */
}

/* Return: index of the section. */
static inline size_t wr_elf_section(struct wr_elf *elf, const char *name,
				    uint32_t type, size_t off, const void *data,
				    size_t size)
{
	Elf64_Shdr *shdr = &elf->shdrs[elf->n_shdrs];

	wr_at(&elf->out, off, data, size);
	shdr->sh_name = (uint32_t)elf->names.size;
	shdr->sh_type = type;
	shdr->sh_flags = SHF_ALLOC;
	shdr->sh_addr = off;
	shdr->sh_offset = off;
	shdr->sh_size = size;
	wr_bytes(&elf->names, name, strlen(name) + 1);
	return elf->n_shdrs++;
}

static inline void wr_elf_phdr(struct wr_elf *elf, uint32_t type, size_t off,
			       size_t size)
{
	elf->phdrs[elf->n_phdrs++] = (Elf64_Phdr){
		.p_type = type,
		.p_flags = PF_R,
		.p_offset = off,
		.p_vaddr = off,
		.p_filesz = size,
		.p_memsz = size,
		.p_align = 4,
	};
}

/* Writes the headers. The image is elf->out, the caller frees it. */
static inline void wr_elf_finish(struct wr_elf *elf)
{
	size_t names_off = elf->out.size;
	size_t strtab = elf->n_shdrs++;

	elf->shdrs[strtab].sh_name = (uint32_t)elf->names.size;
	wr_bytes(&elf->names, ".shstrtab", 10);
	elf->shdrs[strtab].sh_type = SHT_STRTAB;
	elf->shdrs[strtab].sh_offset = names_off;
	elf->shdrs[strtab].sh_size = elf->names.size;
	wr_bytes(&elf->out, elf->names.data, elf->names.size);

	size_t sh_off = elf->out.size;

	wr_bytes(&elf->out, elf->shdrs, elf->n_shdrs * sizeof(elf->shdrs[0]));
	elf->phdrs[0] = (Elf64_Phdr){
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_filesz = elf->out.size,
		.p_memsz = elf->out.size,
		.p_align = 4096,
	};

	Elf64_Ehdr ehdr = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
			     ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(ehdr),
		.e_shoff = sh_off,
		.e_ehsize = sizeof(ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (uint16_t)elf->n_phdrs,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = (uint16_t)elf->n_shdrs,
		.e_shstrndx = (uint16_t)strtab,
	};

	wr_at(&elf->out, 0, &ehdr, sizeof(ehdr));
	wr_at(&elf->out, sizeof(ehdr), elf->phdrs,
	      elf->n_phdrs * sizeof(elf->phdrs[0]));
	wr_free(&elf->names);
}

/* ---- .eh_frame ---- */

#define WR_TEXT	    0x1000 /* vaddr of .text in wr_eh_image() */
#define WR_EH_FRAME 0x800  /* vaddr of .eh_frame there */

static inline void wr_patch_u32(struct wr *wr, size_t off, uint32_t value)
{
	wr_at(wr, off, &value, sizeof(value));
}

/* Length of the record that begins at @off, after its content. */
static inline void wr_end_record(struct wr *wr, size_t off)
{
	while ((wr->size - off) % 4)
		wr_u8(wr, 0); /* DW_CFA_nop */
	wr_patch_u32(wr, off, (uint32_t)(wr->size - off - 4));
}

/*
 * A CIE as compilers write it: code 1, data -8, RA 16, CFA = rsp + 8, the
 * return address at CFA - 8; pointers are pcrel sdata4.
 * Return: its offset.
 */
static inline size_t wr_cie(struct wr *wr, const char *augmentation)
{
	size_t off = wr->size;

	wr_u32(wr, 0);
	wr_u32(wr, 0);
	wr_u8(wr, 1);
	wr_bytes(wr, augmentation, strlen(augmentation) + 1);
	wr_uleb(wr, 1);
	wr_sleb(wr, -8);
	wr_u8(wr, 16);
	wr_uleb(wr, 1);
	wr_u8(wr, 0x1b);
	wr_bytes(wr, "\x0c\x07\x08\x90\x01", 5);
	wr_end_record(wr, off);
	return off;
}

static inline void wr_fde(struct wr *wr, size_t cie_off, uint32_t vaddr,
			  uint32_t size, const void *program, size_t len)
{
	size_t off = wr->size;

	wr_u32(wr, 0);
	wr_u32(wr, (uint32_t)(off + 4 - cie_off));
	wr_u32(wr, vaddr - (uint32_t)(WR_EH_FRAME + off + 8));
	wr_u32(wr, size);
	wr_uleb(wr, 0);
	wr_bytes(wr, program, len);
	wr_end_record(wr, off);
}

/* An image with .eh_frame and .text. The caller frees the result. */
static inline struct wr wr_eh_image(const struct wr *eh_frame, const void *text,
				    size_t text_size)
{
	struct wr_elf elf;

	wr_elf_init(&elf);
	wr_elf_section(&elf, ".eh_frame", SHT_PROGBITS, WR_EH_FRAME,
		       eh_frame->data, eh_frame->size);
	wr_elf_section(&elf, ".text", SHT_PROGBITS, WR_TEXT, text, text_size);
	wr_elf_finish(&elf);
	return elf.out;
}

#endif
