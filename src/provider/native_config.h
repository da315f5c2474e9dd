/*
 * The config of native places: how people write it, and the sandbox it asks the keeper for.
 */
#pragma once

#include "base/json.h"
#include "provider/config.h"
#include "provider/native_seccomp.h"
#include "record/place.h"

#define NATIVE_KEY "native"

extern const struct field NATIVE_FIELDS[];
json_t *native_normalize(const json_t *config, bool allow_faults, struct error *err);

/* How many places are kept ready. */
uint32_t native_pool(const json_t *config);
bool native_is_reusable(const json_t *config);
/* Whether it lets the place write to directories of the host. */
bool native_shares(const json_t *config, const struct workspace_mount *workspace);
/* One SANDBOX frame; `store` NULL: files go with the place; `workspace` NULL: one of its own. */
int native_sandbox(const json_t *config, const struct workspace_mount *workspace, const char *store,
		   const struct seccomp_filter *filter, struct buf *out, struct error *err);
/* {walls: [...], missing: [...]} */
json_t *native_boundary(uint64_t walls);
