/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files hold a LuaJIT VM: images made here, files of this system.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "luajit.h"
#include "lb_test.h"
#include "lb_write.h"

#define LIB_DIR	 "/usr/lib/x86_64-linux-gnu/"
#define UPSTREAM ".output/deb/upstream/usr/"

#define VM_SIZE 9000

/* def_cfa_offset 80; rbp, rbx, r15, r14 in slots 2 ... 5 */
#define VM_PROGRAM    "\x0e\x50\x86\x02\x83\x03\x8f\x04\x8e\x05"
#define VM_PROGRAM_96 "\x0e\x60\x86\x02\x83\x03\x8f\x04\x8e\x05"
/* def_cfa rbp 16; rbp and rbx in slots 2 and 3 */
#define FFI_PROGRAM "\x0c\x06\x10\x86\x02\x83\x03"

struct vm {
	uint8_t code[VM_SIZE];
	const char *program;
	size_t program_size;
	uint32_t size;
	uint32_t ffi_gap; /* between the VM and lj_vm_ffi_call */
	bool no_ffi;
};

#define ENTRY	 "\x55\x53\x41\x57\x41\x56\x48\x83\xec\x28"
#define ENTRY_96 "\x55\x53\x41\x57\x41\x56\x48\x83\xec\x38"

/* mov ebx, 1; mov r14, [rbp + 16]; add r14, 4008; mov [rbp + 80], rsp; */
#define CALL_GC64_A                                              \
	"\xbb\x01\0\0\0\x4c\x8b\x75\x10\x49\x81\xc6\xa8\x0f\0\0" \
	"\x48\x89\x65\x50"
/* mov [rsp + 8], edx; mov [rsp + 16], rdi; mov [rsp + 32], r15;
 * mov [rsp + 24], rbp */
#define SLOTS_GC64                                                 \
	"\x89\x54\x24\x08\x48\x89\x7c\x24\x10\x4c\x89\x7c\x24\x20" \
	"\x48\x89\x6c\x24\x18"
/* mov [r14 - 3640], rbp; mov dword [r14 - 3824], -1 */
#define CALL_GC64_B                                                        \
	"\x49\x89\xae\xc8\xf1\xff\xff\x41\xc7\x86\x10\xf1\xff\xff\xff\xff" \
	"\xff\xff"
#define CALL_GC64 CALL_GC64_A SLOTS_GC64 CALL_GC64_B
/* the same with r14d, ebp, other slots and LuaJIT 2.1.0-beta3's distances */
#define CALL_GC32_A                                              \
	"\xbb\x01\0\0\0\x44\x8b\x75\x08\x41\x81\xc6\x28\x0c\0\0" \
	"\x48\x89\x65\x30"
#define SLOTS_GC32                                                 \
	"\x89\x54\x24\x10\x89\x7c\x24\x18\x4c\x89\x7c\x24\x20\x89" \
	"\x6c\x24\x1c"
#define CUR_L_GC32   "\x41\x89\xae\xd0\xf4\xff\xff"
#define VMSTATE_GC32 "\x41\xc7\x86\x30\xf4\xff\xff\xff\xff\xff\xff"
#define CALL_GC32    CALL_GC32_A SLOTS_GC32 CUR_L_GC32 VMSTATE_GC32
/* LuaJIT 2.0 */
#define CALL_2_0 CALL_GC32_A SLOTS_GC32 VMSTATE_GC32

/* jmp [r14 + rbp * 8 + 1232] */
#define STATIC_JMP "\x41\xff\xa4\xee\xd0\x04\0\0"
#define STATIC_AT  2000

/* Where the parts of CALL_GC64 are in the image below. */
#define CALL_AT	   1210
#define G2DISP_AT  (CALL_AT + 12)
#define SLOTS_AT   (CALL_AT + sizeof(CALL_GC64_A) - 1)
#define CUR_L_AT   (SLOTS_AT + sizeof(SLOTS_GC64) - 1)
#define VMSTATE_AT (CUR_L_AT + 7)

#define PUT(vm, off, bytes) memcpy((vm)->code + (off), bytes, sizeof(bytes) - 1)

static void vm_init(struct vm *vm)
{
	memset(vm, 0, sizeof(*vm));
	memset(vm->code, 0xcc, sizeof(vm->code));
	vm->program = VM_PROGRAM;
	vm->program_size = sizeof(VM_PROGRAM) - 1;
	vm->size = VM_SIZE - 64;
	PUT(vm, 1000, ENTRY);
	PUT(vm, 1100, ENTRY);
	PUT(vm, 1200, ENTRY);
	PUT(vm, CALL_AT, CALL_GC64);
	PUT(vm, STATIC_AT, STATIC_JMP);
	PUT(vm, STATIC_AT + 20, STATIC_JMP);
}

static struct wr vm_image(const struct vm *vm)
{
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");
	struct wr image;

	wr_fde(&eh, cie, WR_TEXT, vm->size, vm->program, vm->program_size);
	if (!vm->no_ffi)
		wr_fde(&eh, cie, WR_TEXT + vm->size + vm->ffi_gap, 32,
		       FFI_PROGRAM, sizeof(FFI_PROGRAM) - 1);
	image = wr_eh_image(&eh, vm->code, sizeof(vm->code));
	wr_free(&eh);
	return image;
}

static int find_in(const void *data, size_t size, struct lb_luajit *luajit)
{
	struct lb_elf *elf;
	int ret = lb_elf_open_mem(data, size, "image", &elf);

	memset(luajit, 0, sizeof(*luajit));
	if (ret)
		return ret;
	ret = lb_luajit_find(elf, luajit);
	lb_elf_free(elf);
	return ret;
}

static int find_vm(const struct vm *vm, struct lb_luajit *luajit)
{
	struct wr image = vm_image(vm);
	int ret = find_in(image.data, image.size, luajit);

	wr_free(&image);
	return ret;
}

static void test_gc64(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.vm_vaddr, WR_TEXT);
	CHECK_INT(luajit.vm_size, vm.size);
	CHECK_INT(luajit.ffi_call_vaddr, WR_TEXT + vm.size);
	CHECK_INT(luajit.ffi_call_size, 32);
	CHECK_INT(luajit.cframe_size, 80);
	CHECK_INT(luajit.gc64, 1);
	CHECK_INT(luajit.g2disp, 4008);
	CHECK_INT(luajit.g_cur_l, 368);
	CHECK_INT(luajit.g_vmstate, 184);
	CHECK_INT(luajit.static_dispatch, 1232);
	CHECK_INT(luajit.cf_nres, 8);
	CHECK_INT(luajit.cf_l, 16);
	CHECK_INT(luajit.cf_pc, 24);
	CHECK_INT(luajit.cf_prev, 32);
}

static void test_not_gc64(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	PUT(&vm, CALL_AT, CALL_GC32);
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.gc64, 0);
	CHECK_INT(luajit.g2disp, 3112);
	CHECK_INT(luajit.g_cur_l, 248);
	CHECK_INT(luajit.g_vmstate, 88);
	CHECK_INT(luajit.cf_nres, 16);
	CHECK_INT(luajit.cf_l, 24);
	CHECK_INT(luajit.cf_pc, 28);
	CHECK_INT(luajit.cf_prev, 32);
}

static void test_no_cur_l(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	memset(vm.code + CALL_AT, 0x90, sizeof(CALL_GC64) - 1);
	PUT(&vm, CALL_AT, CALL_2_0);
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.gc64, 0);
	CHECK_INT(luajit.g2disp, 3112);
	CHECK_INT(luajit.g_cur_l, LB_LUAJIT_NONE);
	CHECK_INT(luajit.g_vmstate, 88);
	CHECK_INT(luajit.cf_pc, 28);
}

static void test_large_c_frame(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	vm.program = VM_PROGRAM_96;
	CHECK_INT(find_vm(&vm, &luajit), -ENOENT); /* entries of the other */
	PUT(&vm, 1000, ENTRY_96);
	PUT(&vm, 1100, ENTRY_96);
	PUT(&vm, 1200, ENTRY_96);
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.cframe_size, 96);
}

static void test_without_ffi(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	vm.no_ffi = true;
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.ffi_call_vaddr, 0);
	vm.no_ffi = false;
	vm.ffi_gap = 16;
	CHECK_INT(find_vm(&vm, &luajit), 0);
	CHECK_INT(luajit.ffi_call_vaddr, 0);
}

/* A VM, but not one whose entries are understood. */
static void test_marks_not_understood(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	memset(vm.code + CUR_L_AT, 0x90, 7); /* only 2.0 has no cur_L */
	CHECK_INT(find_vm(&vm, &luajit), -EOPNOTSUPP);
	CHECK_INT(luajit.vm_vaddr, WR_TEXT);
	CHECK_INT(luajit.vm_size, vm.size);
	CHECK_INT(luajit.cframe_size, 80);
	CHECK_INT(luajit.g2disp, 0);

	/* values that cannot be */
	static const struct {
		size_t off;
		uint8_t byte;
	} cases[] = {
		{ G2DISP_AT + 3, 0x7f },
		{ G2DISP_AT + 3, 0x80 },
		{ CUR_L_AT + 6, 0x80 },
		{ CUR_L_AT + 6, 0x00 },
		{ VMSTATE_AT + 6, 0x80 },
		{ VMSTATE_AT + 10, 0x7f },
		{ STATIC_AT + 4, 0xd8 }, /* two that differ */
		{ STATIC_AT + 27, 0x80 },
		{ SLOTS_AT, 0x8b },	 /* nres is loaded, not stored */
		{ SLOTS_AT + 3, 0x28 },	 /* above the C frame */
		{ SLOTS_AT + 3, 0xf8 },	 /* below it */
		{ SLOTS_AT + 4, 0x40 },	 /* L: half of it */
		{ SLOTS_AT + 11, 0x74 }, /* r14, not r15 */
		{ SLOTS_AT + 16, 0x5c }, /* rbx, not rbp */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		vm_init(&vm);
		vm.code[cases[i].off] = cases[i].byte;
		CHECK_INT(find_vm(&vm, &luajit), -EOPNOTSUPP);
	}
}

static void test_not_a_vm(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	vm_init(&vm);
	vm.size = 8000;
	CHECK_INT(find_vm(&vm, &luajit), -ENOENT);
	vm_init(&vm);
	vm.code[1100] = 0x54; /* two entries left */
	CHECK_INT(find_vm(&vm, &luajit), -ENOENT);
	vm_init(&vm);
	vm.program_size -= 2; /* r14 is not saved */
	CHECK_INT(find_vm(&vm, &luajit), -ENOENT);
	vm_init(&vm);
	vm.program = VM_PROGRAM "\x41\x0e\x08"; /* two rows */
	vm.program_size += 3;
	CHECK_INT(find_vm(&vm, &luajit), -ENOENT);
}

/* The entry code ends with the VM, or with the file. */
static void test_cut_code(void)
{
	struct lb_luajit luajit;
	struct vm vm;

	for (uint32_t at = VM_SIZE - 64 - 80; at < VM_SIZE - 64; at++) {
		vm_init(&vm);
		PUT(&vm, 1200, "\xcc\xcc\xcc\xcc\xcc");
		PUT(&vm, 1300, ENTRY);
		memcpy(vm.code + at, ENTRY, sizeof(ENTRY) - 1);
		memcpy(vm.code + at + 10, CALL_GC64,
		       at + 10 + sizeof(CALL_GC64) - 1 <= VM_SIZE
			       ? sizeof(CALL_GC64) - 1
			       : VM_SIZE - at - 10);

		int want = at + 10 + sizeof(CALL_GC64) - 1 <= vm.size
				   ? 0
				   : -EOPNOTSUPP;

		CHECK_INT(find_vm(&vm, &luajit), want);
	}
}

static void test_cut_file_at_each_byte(void)
{
	struct lb_luajit luajit;
	struct wr image;
	struct vm vm;

	vm_init(&vm);
	image = vm_image(&vm);
	for (size_t size = 0; size < image.size; size++)
		CHECK(find_in(image.data, size, &luajit) < 0);
	CHECK_INT(find_in(image.data, image.size, &luajit), 0);
	wr_free(&image);
}

/* ---- files of this system ---- */

struct file_case {
	const char *path;
	int want;
	uint32_t g2disp; /* of either fork; 0: not checked */
};

static int check_path(const struct file_case *file)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);
	struct lb_luajit luajit;
	struct lb_elf *elf;

	if (fd < 0)
		return -ENOENT;
	CHECK_INT(lb_elf_open_fd(fd, file->path, &elf), 0);
	close(fd);

	int ret = lb_luajit_find(elf, &luajit);

	if (ret != file->want)
		fprintf(stderr, "%s: %d\n", file->path, ret);
	CHECK_INT(ret, file->want);
	lb_elf_free(elf);
	if (ret)
		return 0;
	CHECK_INT(luajit.cframe_size, 80);
	CHECK_INT(luajit.gc64, 1);
	CHECK_INT(luajit.g_cur_l, 368);
	CHECK_INT(luajit.g_vmstate, 184);
	CHECK_INT(luajit.static_dispatch, 1232);
	CHECK_INT(luajit.cf_nres, 8);
	CHECK_INT(luajit.cf_l, 16);
	CHECK_INT(luajit.cf_pc, 24);
	CHECK_INT(luajit.cf_prev, 32);
	CHECK(luajit.ffi_call_vaddr == luajit.vm_vaddr + luajit.vm_size);
	CHECK_INT(luajit.ffi_call_size, 160);
	if (file->g2disp)
		CHECK_INT(luajit.g2disp, file->g2disp);
	else
		CHECK(luajit.g2disp == 4008 || luajit.g2disp == 3968);
	return 0;
}

static void test_files_with_a_vm(void)
{
	static const struct file_case files[] = {
		/* luajit or luajit2: both packages use these paths */
		{ LIB_DIR "libluajit-5.1.so.2", 0, 0 },
		{ "/usr/bin/luajit", 0, 0 },
		{ UPSTREAM "lib/x86_64-linux-gnu/libluajit-5.1.so.2", 0, 3968 },
		{ UPSTREAM "bin/luajit", 0, 3968 },
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		n += !check_path(&files[i]);
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

static void test_files_without_a_vm(void)
{
	static const struct file_case files[] = {
		{ LIB_DIR "libc.so.6", -ENOENT, 0 },
		{ LIB_DIR "libcrypto.so.3", -ENOENT, 0 },
		{ LIB_DIR "libstdc++.so.6", -ENOENT, 0 },
		{ LIB_DIR "liblua5.1.so.0", -ENOENT, 0 },
		{ LIB_DIR "liblua5.4.so.0", -ENOENT, 0 },
		{ LIB_DIR "liblua5.1-cjson.so.0", -ENOENT, 0 },
		{ "/usr/sbin/nginx", -ENOENT, 0 },
		{ "/usr/bin/python3", -ENOENT, 0 },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		check_path(&files[i]);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_gc64),
		LB_TEST(test_not_gc64),
		LB_TEST(test_no_cur_l),
		LB_TEST(test_large_c_frame),
		LB_TEST(test_without_ffi),
		LB_TEST(test_marks_not_understood),
		LB_TEST(test_not_a_vm),
		LB_TEST(test_cut_code),
		LB_TEST(test_cut_file_at_each_byte),
		LB_TEST(test_files_with_a_vm),
		LB_TEST(test_files_without_a_vm),
	};

	return LB_TEST_MAIN(cases);
}
