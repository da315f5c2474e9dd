/*
 * The config of native places: how people write it, and the sandbox it asks the keeper for.
 */
#pragma once

#include "base/json.h"
#include "driver/config.h"
#include "driver/maker.h"
#include "driver/native/native_seccomp.h"

#define NATIVE_KEY "native"

extern const struct config_schema NATIVE_CONFIG;
json_t *native_normalize(const struct maker *self, const json_t *config, bool saving,
			 struct error *err);

/* How many places are kept ready. */
uint32_t native_pool(const json_t *config);
bool native_is_reusable(const json_t *config);
/* Whether it lets the place write to directories of the host. */
bool native_shares(const json_t *config, const struct workspace_mount *workspace);
void native_needs(const json_t *config, struct place_needs *out);
/*
 * One SANDBOX frame; `store` NULL: files go with the place; `closed` NULL: there is no further
 * directory that it must not see.
 */
int native_sandbox(const struct place_view *wanted, const char *store, const char *closed,
		   const struct seccomp_filter *filter, struct buf *out, struct error *err);
/* {walls: [...], missing: [...]} */
json_t *native_boundary(uint64_t walls);
