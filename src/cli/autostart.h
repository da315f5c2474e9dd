/*
 * `berth run` with no server: start one in the background that ends by itself when nobody needs it.
 */
#pragma once

#include "cli/api.h"

/* Returns when the server answers; on failure the error carries the end of its log. */
int autostart(struct cli *cli, struct api *api, struct error *err);
