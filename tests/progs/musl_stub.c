/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libgcc's unwinder, built for glibc, misses in musl: with "not found"
 * it goes on by dl_iterate_phdr(), which musl has. LuaJIT throws errors by it.
 */
int _dl_find_object(void *pc, void *result);

int _dl_find_object(void *pc, void *result)
{
	(void)pc;
	(void)result;
	return -1;
}
