-- SPDX-License-Identifier: Apache-2.0
-- Samples in system calls: the kernel's frames on top of the right Lua ones.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local ffi = require("ffi")
ffi.cdef [[
  int getppid(void);
  int open(const char *, int, ...);
  long read(int, void *, size_t);
  long write(int, const void *, size_t);
]]
local C = ffi.C
local zero, null = C.open("/dev/zero", 0), C.open("/dev/null", 1)
local buffer = ffi.new("char[65536]")

local function do_read(n) --: do_read
  for i = 1, n do C.read(zero, buffer, 65536) end
end
local function do_write(n) --: do_write
  for i = 1, n do C.write(null, buffer, 100) end
end
local function do_getppid(n) --: do_getppid
  for i = 1, n do C.getppid() end
end

-- The library's own files, through stdio.
local file = assert(io.open("/dev/zero", "rb"))
file:setvbuf("no")
local function do_file(n) --: do_file
  for i = 1, n do file:read(4096) end
end

while go() do
  local t0 = clock()
  do_read(300)
  local t1 = clock()
  do_write(4000)
  local t2 = clock()
  do_getppid(8000)
  local t3 = clock()
  do_file(200)
  local t4 = clock()
  add("do_read", t1 - t0)
  add("do_write", t2 - t1)
  add("do_getppid", t3 - t2)
  add("do_file", t4 - t3)
end
