-- SPDX-License-Identifier: Apache-2.0
-- For ever: calls an empty function so many times, and prints the CPU time of
-- one call in nanoseconds. Argument: `hook` counts calls by debug.sethook.
local BLOCK = 20000
local clock = os.clock

local function callee() --: callee
end
local function block() --: block
  local begin = clock()
  for i = 1, BLOCK do callee() end
  return (clock() - begin) / BLOCK * 1e9
end

if (...) == "hook" then
  local counts = setmetatable({}, { __index = function() return 0 end })
  debug.sethook(function()
    local func = debug.getinfo(2, "f").func
    counts[func] = counts[func] + 1
  end, "c")
end
io.write("ready\n")
io.flush()
while true do
  io.write(string.format("%.1f\n", block()))
  io.flush()
end
