/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF files: images made here, files of this system against libelf, damage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <elfutils/libdwelf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf.h"
#include "lb_test.h"
#include "lb_write.h"

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"

struct image_syms {
	size_t n;
	uint64_t vaddr_of_two;
};

static int count_sym(void *arg, const struct lb_elf_sym *sym)
{
	struct image_syms *syms = arg;

	syms->n++;
	if (!strcmp(sym->name, "two"))
		syms->vaddr_of_two = sym->vaddr;
	return 0;
}

/* Two symbols (one undefined), a build ID, a dynamic table. */
static struct wr make_image(void)
{
	static const char names[] = "\0one\0two";
	static const Elf64_Sym syms[3] = {
		{ 0 },
		{ .st_name = 1, .st_info = STT_FUNC, .st_value = 0x1010 },
		{ .st_name = 5,
		  .st_info = (STB_GLOBAL << 4) | STT_FUNC,
		  .st_value = 0x1020,
		  .st_size = 7,
		  .st_shndx = 1 },
	};
	static const uint32_t note[] = {
		4, 5, NT_GNU_BUILD_ID, 0x00554e47, 0x04030201, 0x5
	};
	static const uint32_t hash[] = { 1, 3, 2, 0, 0, 0 };
	static const Elf64_Dyn dyn[] = {
		{ .d_tag = DT_SYMTAB, .d_un.d_ptr = 0x500 },
		{ .d_tag = DT_STRTAB, .d_un.d_ptr = 0x600 },
		{ .d_tag = DT_STRSZ, .d_un.d_val = sizeof(names) },
		{ .d_tag = DT_HASH, .d_un.d_ptr = 0x680 },
		{ .d_tag = DT_NULL },
	};
	struct wr_elf elf;

	wr_elf_init(&elf);
	wr_elf_section(&elf, ".dynsym", SHT_DYNSYM, 0x500, syms, sizeof(syms));
	elf.shdrs[1].sh_link = 2;
	elf.shdrs[1].sh_entsize = sizeof(syms[0]);
	wr_elf_section(&elf, ".dynstr", SHT_STRTAB, 0x600, names,
		       sizeof(names));
	wr_elf_section(&elf, ".hash", SHT_HASH, 0x680, hash, sizeof(hash));
	wr_elf_section(&elf, ".note.gnu.build-id", SHT_NOTE, 0x700, note,
		       sizeof(note));
	wr_elf_section(&elf, ".dynamic", SHT_DYNAMIC, 0x740, dyn, sizeof(dyn));
	wr_elf_phdr(&elf, PT_NOTE, 0x700, sizeof(note));
	wr_elf_phdr(&elf, PT_DYNAMIC, 0x740, sizeof(dyn));
	wr_elf_finish(&elf);
	return elf.out;
}

static void check_image(const struct lb_elf *elf)
{
	struct image_syms syms = { 0 };
	uint8_t id[LB_BUILD_ID_MAX];
	size_t id_len = 0;
	uint64_t vaddr = 0;

	CHECK_INT(lb_elf_each_sym(elf, ".dynsym", count_sym, &syms), 0);
	CHECK_INT(syms.n, 2);
	CHECK_INT(syms.vaddr_of_two, 0x1020);
	CHECK_INT(lb_elf_dynsym(elf, "two", &vaddr), 0);
	CHECK_INT(vaddr, 0x1020);
	CHECK_INT(lb_elf_dynsym(elf, "one", &vaddr), -ENOENT); /* undefined */
	CHECK_INT(lb_elf_dynsym(elf, "tw", &vaddr), -ENOENT);
	CHECK_INT(lb_elf_build_id(elf, id, &id_len), 0);
	CHECK_INT(id_len, 5);
	CHECK(!memcmp(id, "\1\2\3\4\5", 5));
}

static void test_image(void)
{
	struct wr image = make_image();
	struct lb_elf *elf;
	struct lb_section section;

	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_STR(lb_elf_name(elf), "image");
	CHECK_INT(lb_elf_size(elf), image.size);
	CHECK_INT(lb_elf_type(elf), ET_DYN);
	CHECK_INT(lb_elf_n_sections(elf), 7);
	CHECK_INT(lb_elf_section(elf, ".dynstr", &section), 0);
	CHECK_INT(section.vaddr, 0x600);
	CHECK_STR((const char *)section.data + 5, "two");
	CHECK_INT(lb_elf_section(elf, ".none", &section), -ENODATA);
	CHECK_INT(lb_elf_section_at(elf, 7, &section), -ENODATA);
	CHECK_INT(lb_elf_eh_frame(elf, &section), -ENODATA);
	CHECK(lb_elf_vaddr_data(elf, 0x605, 3));
	CHECK(!lb_elf_vaddr_data(elf, image.size, 1));
	CHECK(!lb_elf_vaddr_data(elf, 0x600, image.size));
	CHECK(!lb_elf_vaddr_data(elf, 0x600, UINT64_MAX));
	check_image(elf);
	lb_elf_free(elf);
	wr_free(&image);
}

/* As `strip --strip-section-headers` leaves it. */
static void test_image_without_sections(void)
{
	struct wr image = make_image();
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)image.data;
	struct lb_elf *elf;

	ehdr->e_shoff = 0;
	ehdr->e_shnum = 0;
	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_INT(lb_elf_n_sections(elf), 0);
	check_image(elf);
	lb_elf_free(elf);
	wr_free(&image);
}

static void test_not_for_us(void)
{
	static const struct {
		size_t off;
		uint8_t byte;
		int want;
	} cases[] = {
		{ 0, 0, -ENOEXEC },
		{ EI_CLASS, ELFCLASS32, -EOPNOTSUPP },
		{ EI_DATA, ELFDATA2MSB, -EOPNOTSUPP },
		{ offsetof(Elf64_Ehdr, e_machine), EM_386, -EOPNOTSUPP },
		{ offsetof(Elf64_Ehdr, e_phentsize), 32, -EBADMSG },
		{ offsetof(Elf64_Ehdr, e_phoff) + 7, 0xff, -EBADMSG },
		{ offsetof(Elf64_Ehdr, e_phnum) + 1, 0x20, -E2BIG },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wr image = make_image();
		struct lb_elf *elf;

		image.data[cases[i].off] = cases[i].byte;
		CHECK_INT(lb_elf_open_mem(image.data, image.size, "x", &elf),
			  cases[i].want);
		wr_free(&image);
	}

	struct lb_elf *elf;

	CHECK_INT(lb_elf_open_mem(NULL, 0, "empty", &elf), -ENOEXEC);
	CHECK_INT(lb_elf_open_mem("\177ELF", 4, "cut", &elf), -EBADMSG);
}

static void test_bias(void)
{
	static const Elf64_Phdr phdrs[] = {
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R,
		  .p_filesz = 0x1800,
		  .p_memsz = 0x1800 },
		/* begins in the last page of the one before, as lld does */
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_X,
		  .p_offset = 0x1800,
		  .p_vaddr = 0x2800,
		  .p_filesz = 0x2a00,
		  .p_memsz = 0x2a00 },
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_W,
		  .p_offset = 0x4200,
		  .p_vaddr = 0x6200,
		  .p_filesz = 0x100,
		  .p_memsz = 0x9000 },
	};
	struct wr image = make_image();
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)image.data;
	struct lb_elf *elf;
	uint64_t bias = 1;

	ehdr->e_phnum = 3;
	wr_at(&image, sizeof(*ehdr), phdrs, sizeof(phdrs));
	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_INT(lb_elf_bias(elf, 0x7f0000002000, 0x1000, &bias), 0);
	CHECK_INT(bias, 0x7f0000000000);
	/* the second half of a mapping that was split */
	CHECK_INT(lb_elf_bias(elf, 0x7f0000004000, 0x3000, &bias), 0);
	CHECK_INT(bias, 0x7f0000000000);
	CHECK_INT(lb_elf_bias(elf, 0x7f0000000000, 0, &bias), 0);
	CHECK_INT(bias, 0x7f0000000000);
	CHECK_INT(lb_elf_bias(elf, 0, 0x9000, &bias), -ENOENT);
	lb_elf_free(elf);
	wr_free(&image);
}

/* Every call there is, for its effects only. */
static void use_all(const void *data, size_t size)
{
	static const char *const names[] = { ".dynsym", ".symtab",
					     ".eh_frame" };
	struct lb_elf *elf;
	struct lb_section section;
	struct image_syms syms = { 0 };
	uint8_t id[LB_BUILD_ID_MAX];
	size_t id_len;
	uint64_t value;

	if (lb_elf_open_mem(data, size, "damaged", &elf))
		return;
	for (size_t i = 0; i < 3; i++) {
		lb_elf_section(elf, names[i], &section);
		lb_elf_each_sym(elf, names[i], count_sym, &syms);
	}
	for (size_t i = 0; i < lb_elf_n_sections(elf) && i < 32; i++)
		lb_elf_section_at(elf, i, &section);
	if (!lb_elf_eh_frame(elf, &section))
		CHECK(section.size <= size);
	lb_elf_build_id(elf, id, &id_len);
	lb_elf_bias(elf, 0x1000, 0x1000, &value);
	lb_elf_vaddr_data(elf, 0x500, 64);
	lb_elf_free(elf);
}

static void test_cut_at_each_byte(void)
{
	struct wr image = make_image();

	for (size_t size = 0; size < image.size; size++)
		use_all(image.data, size);
	wr_free(&image);
}

static void test_each_field_at_maximum(void)
{
	static const size_t widths[] = { 2, 4, 8 };
	struct wr image = make_image();
	uint8_t *copy = malloc(image.size);

	for (size_t w = 0; w < 3; w++) {
		for (size_t off = 0; off + widths[w] <= image.size; off++) {
			memcpy(copy, image.data, image.size);
			memset(copy + off, 0xff, widths[w]);
			use_all(copy, image.size);
			copy[off + widths[w] - 1] = 0x7f;
			use_all(copy, image.size);
		}
	}
	free(copy);
	wr_free(&image);
}

/* Somebody shortens the file while we have it open. */
static void test_file_shrinks(void)
{
	struct wr image = make_image();
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct lb_elf *elf;
	struct lb_section section;

	/* far enough behind to be in another part of the file */
	wr_at(&image, (size_t)1 << 20, "", 1);

	const Elf64_Ehdr *ehdr = (Elf64_Ehdr *)image.data;
	const uint64_t off = 0x80000;

	wr_at(&image,
	      ehdr->e_shoff + 2 * sizeof(Elf64_Shdr) +
		      offsetof(Elf64_Shdr, sh_offset),
	      &off, sizeof(off));
	CHECK_INT(write(fd, image.data, image.size), image.size);
	CHECK_INT(lb_elf_open_fd(fd, "image", &elf), 0);
	CHECK_INT(ftruncate(fd, 0x2000), 0);
	CHECK_INT(lb_elf_section(elf, ".dynstr", &section), -EBADMSG);
	CHECK_INT(lb_elf_section(elf, ".dynsym", &section), 0);
	lb_elf_free(elf);
	close(fd);
	wr_free(&image);
}

static void test_not_a_file(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY);
	struct lb_elf *elf;

	CHECK_INT(lb_elf_open_fd(fd, "/", &elf), -ENOEXEC);
	close(fd);
	CHECK_INT(lb_elf_open_fd(-1, "none", &elf), -EBADF);
}

static size_t gelf_count_syms(Elf *gelf, GElf_Word type)
{
	Elf_Scn *scn = NULL;
	size_t n = 0;

	while ((scn = elf_nextscn(gelf, scn))) {
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != type)
			continue;

		Elf_Data *data = elf_getdata(scn, NULL);

		for (size_t i = 0; i < shdr.sh_size / shdr.sh_entsize; i++) {
			GElf_Sym sym;

			gelf_getsym(data, (int)i, &sym);
			n += *elf_strptr(gelf, shdr.sh_link, sym.st_name) != 0;
		}
	}
	return n;
}

static void test_libc_against_libelf(void)
{
	int fd = open(LIBC, O_RDONLY | O_CLOEXEC);
	struct lb_elf *elf;
	struct image_syms syms = { 0 };
	uint8_t id[LB_BUILD_ID_MAX];
	size_t id_len = 0;
	const void *want_id;
	uint64_t vaddr;

	if (fd < 0) {
		SKIP("libc: " LIBC " is not here");
		return;
	}
	elf_version(EV_CURRENT);

	Elf *gelf = elf_begin(fd, ELF_C_READ, NULL);
	ssize_t want_len = dwelf_elf_gnu_build_id(gelf, &want_id);
	size_t n_sections = 0;

	int own_fd = dup(fd);

	CHECK_INT(lb_elf_open_fd(own_fd, LIBC, &elf), 0);
	close(own_fd); /* it keeps a duplicate */
	CHECK_INT(lb_elf_build_id(elf, id, &id_len), 0);
	CHECK_INT(id_len, want_len);
	CHECK(want_len > 0 && !memcmp(id, want_id, id_len));
	elf_getshdrnum(gelf, &n_sections);
	CHECK_INT(lb_elf_n_sections(elf), n_sections);
	CHECK_INT(lb_elf_each_sym(elf, ".dynsym", count_sym, &syms), 0);
	CHECK_INT(syms.n, gelf_count_syms(gelf, SHT_DYNSYM));
	CHECK_INT(lb_elf_dynsym(elf, "malloc", &vaddr), 0);
	lb_elf_free(elf);
	elf_end(gelf);
	close(fd);
}

static uint8_t *read_all(const char *path, size_t *size_ret)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*size_ret = (size_t)ftell(file);
	rewind(file);

	uint8_t *data = malloc(*size_ret);

	if (fread(data, 1, *size_ret, file) != *size_ret)
		abort();
	fclose(file);
	return data;
}

/* What PT_DYNAMIC and PT_GNU_EH_FRAME give is what the sections give. */
static void test_libc_without_sections(void)
{
	size_t size;
	uint8_t *data = read_all(LIBC, &size);
	struct lb_elf *whole, *bare;
	struct lb_section want, got;
	struct image_syms want_syms = { 0 }, got_syms = { 0 };

	if (!data) {
		SKIP("libc: " LIBC " is not here");
		return;
	}
	CHECK_INT(lb_elf_open_mem(data, size, "whole", &whole), 0);
	memset(data + offsetof(Elf64_Ehdr, e_shoff), 0, 8);
	CHECK_INT(lb_elf_open_mem(data, size, "bare", &bare), 0);
	CHECK_INT(lb_elf_n_sections(bare), 0);
	CHECK_INT(lb_elf_eh_frame(whole, &want), 0);
	CHECK_INT(lb_elf_eh_frame(bare, &got), 0);
	CHECK_INT(got.vaddr, want.vaddr);
	/* the section may end with a terminator */
	CHECK(got.size <= want.size && got.size + 8 >= want.size);
	CHECK(!memcmp(got.data, want.data, got.size));
	CHECK_INT(lb_elf_each_sym(whole, ".dynsym", count_sym, &want_syms), 0);
	CHECK_INT(lb_elf_each_sym(bare, ".dynsym", count_sym, &got_syms), 0);
	CHECK_INT(got_syms.n, want_syms.n);
	lb_elf_free(whole);
	lb_elf_free(bare);
	free(data);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_image),
		LB_TEST(test_image_without_sections),
		LB_TEST(test_not_for_us),
		LB_TEST(test_bias),
		LB_TEST(test_cut_at_each_byte),
		LB_TEST(test_each_field_at_maximum),
		LB_TEST(test_file_shrinks),
		LB_TEST(test_not_a_file),
		LB_TEST(test_libc_against_libelf),
		LB_TEST(test_libc_without_sections),
	};

	return LB_TEST_MAIN(cases);
}
