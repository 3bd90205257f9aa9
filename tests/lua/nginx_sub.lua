-- SPDX-License-Identifier: Apache-2.0
-- The subrequest of the nginx test.
local app = require("nginx_app")
app.sub()
ngx.exit(200)
