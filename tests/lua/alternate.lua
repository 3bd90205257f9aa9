-- SPDX-License-Identifier: Apache-2.0
-- Calls a() and b() in turn, for ever. THREAD, if there is one: each thread has
-- functions of its own.
local a, b
if THREAD == 2 then
  a = function() end --: a2
  b = function() end --: b2
elseif THREAD == 3 then
  a = function() end --: a3
  b = function() end --: b3
else
  a = function() end --: a1
  b = function() end --: b1
end
io.write("ready\n")
io.flush()
while true do
  a()
  b()
end
