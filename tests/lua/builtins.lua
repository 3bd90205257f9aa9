-- SPDX-License-Identifier: Apache-2.0
-- Prime numbers of calls of fast functions and C functions, some of which the
-- VM enters a second time for the same call. Protocol as in calls.lua.
local function calls()
  local s, n = "some text", 0
  local sub, byte, abs, max = string.sub, string.byte, math.abs, math.max
  local type, tostring, rawget, pcall = type, tostring, rawget, pcall
  local select, format, time = select, string.format, os.time
  for i = 1, 101 do n = sub(s, 2, 3) end
  for i = 1, 103 do n = sub(s, 2) end -- without an end: entered again
  for i = 1, 107 do n = byte(s) end
  for i = 1, 109 do n = abs("-1") end -- a string: entered again
  for i = 1, 113 do n = max(i, 2) end
  for i = 1, 127 do n = type(i) end
  for i = 1, 131 do n = tostring(i) end
  for i = 1, 137 do n = rawget(_G, i) end
  for i = 1, 139 do n = pcall(abs, 1) end -- and abs: 109 + 139
  for i = 1, 149 do n = select("#", i) end
  for i = 1, 151 do n = format("%d", i) end
  for i = 1, 157 do n = time() end
  for i = 1, 163 do pcall(abs) end -- an error of abs itself
end

io.write("ready\n")
io.flush()
io.read()
calls()
io.write("done\n")
io.flush()
io.read("*a")
