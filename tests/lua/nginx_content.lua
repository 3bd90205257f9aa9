-- SPDX-License-Identifier: Apache-2.0
-- content_by_lua_file of the nginx test.
local app = require("nginx_app")
app.handle()
ngx.exit(200)
