#include "record/allow.h"

#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/text.h"

const char *const ALLOW_LIST_FLAGS[] = {
	[ALLOW_ROOT] = "allow-root",
	[ALLOW_MOUNT] = "allow-mount",
	[ALLOW_MOUNT_RW] = "allow-mount-rw",
	[ALLOW_WORKSPACE] = "allow-workspace",
};
const char *const ALLOW_SWITCH_FLAGS[] = {
	[ALLOW_HOST_NETWORK] = "allow-host-network-for-tokens",
	[ALLOW_WRITABLE_MOUNTS] = "allow-writable-mounts-for-tokens",
	[ALLOW_ROOT_USER] = "allow-root-user-for-tokens",
	[ALLOW_IN_PLACE] = "allow-in-place-for-tokens",
	[ALLOW_SOCKETS] = "allow-sockets-for-tokens",
};

static const char *const LISTED[] = {
	[ALLOW_ROOT] = "the root of a place",
	[ALLOW_MOUNT] = "a mount",
	[ALLOW_MOUNT_RW] = "a writable mount",
	[ALLOW_WORKSPACE] = "a workspace",
};
static const char *const CLOSED[] = {
	[ALLOW_HOST_NETWORK] = "network host is",
	[ALLOW_WRITABLE_MOUNTS] = "writable mounts are",
	[ALLOW_ROOT_USER] = "user root of a place is",
	[ALLOW_IN_PLACE] = "workspaces of mode in_place are",
	[ALLOW_SOCKETS] = "unix sockets of the host are",
};

/* "acme=/srv": the directory, and how long the company's name before it is; 0: for all. */
static const char *entry_path(const char *entry, size_t *company_len)
{
	const char *mark = entry[0] == '/' ? NULL : strstr(entry, "=/");

	*company_len = mark ? (size_t)(mark - entry) : 0;
	return mark ? mark + 1 : entry;
}

int allow_entry_check(const char *entry, struct error *err)
{
	size_t company_len;
	const char *path = entry_path(entry, &company_len);

	if (!path_is_absolute(path) || !path_is_clean(path) || entry[0] == '=')
		return error_set(err, ERR_VALIDATION,
				 "wants a clean absolute path, for one company COMPANY=/path; not "
				 "\"%.200s\"",
				 entry);
	return 0;
}

json_t *allow_json(const struct allow *allow)
{
	static const struct allow NOTHING;
	json_t *out = json_object();

	if (!allow)
		allow = &NOTHING;
	for (size_t i = 0; i < ALLOW_LISTS; i++)
		json_put_new(out, ALLOW_LIST_FLAGS[i],
			     allow->list[i] ? json_from_strv(allow->list[i]) : json_array());
	for (size_t i = 0; i < ALLOW_SWITCHES; i++)
		json_put_bool(out, ALLOW_SWITCH_FLAGS[i], allow->open[i]);
	return out;
}

/* Names are unique, and a company may be renamed while the server runs. */
static bool is_company(const struct allow_caller *caller, const char *entry, size_t len)
{
	_cleanup_(company_clear) struct company company = { 0 };

	if (strlen(caller->company_id) == len && strncmp(entry, caller->company_id, len) == 0)
		return true;
	return caller->db && company_get(caller->db, caller->company_id, &company, NULL) == 0 &&
	       strlen(company.name) == len && strncmp(entry, company.name, len) == 0;
}

/* The directory of the list that `real` is below, resolved; NULL: none. */
static char *find_within(const struct allow_caller *caller, enum allow_list list, const char *real)
{
	char **entries = caller->allow ? caller->allow->list[list] : NULL;

	for (; entries && *entries; entries++) {
		size_t company_len;
		const char *path = entry_path(*entries, &company_len);
		_cleanup_free_ char *within = realpath(path, NULL);

		if (within && path_beneath(within, real) &&
		    (company_len == 0 || is_company(caller, *entries, company_len)))
			return steal(within);
	}
	return NULL;
}

int allow_path(const struct allow_caller *caller, enum allow_list list, const char *path,
	       char **within, struct error *err)
{
	_cleanup_free_ char *real = NULL, *found = NULL;

	if (caller->trusted) {
		found = xstrdup("/");
	} else {
		real = realpath(path, NULL);
		found = find_within(caller, list, real ? real : path);
		if (!found && list == ALLOW_MOUNT)
			found = find_within(caller, ALLOW_MOUNT_RW, real ? real : path);
	}
	/* A workspace comes resolved: where a path leads is not told to those who may not go there.
	 */
	if (!found)
		return error_set(err, ERR_FORBIDDEN,
				 "callers with a token may not have %.300s as %s: it is not below "
				 "a directory "
				 "that berth serve --%s gives to this company",
				 list == ALLOW_WORKSPACE ? "this directory" : path, LISTED[list],
				 ALLOW_LIST_FLAGS[list]);
	if (within)
		*within = steal(found);
	return 0;
}

int allow_switch(const struct allow_caller *caller, enum allow_switch which, struct error *err)
{
	if (caller->trusted || (caller->allow && caller->allow->open[which]))
		return 0;
	return error_set(err, ERR_FORBIDDEN,
			 "%s not open to tokens on this server: do without, or start it with --%s",
			 CLOSED[which], ALLOW_SWITCH_FLAGS[which]);
}

void place_bounds_clear(struct place_bounds *bounds)
{
	free(bounds->root);
	for (size_t i = 0; i < PLACE_MOUNTS_MAX; i++)
		free(bounds->mounts[i]);
	*bounds = (struct place_bounds){ 0 };
}

int allow_needs(const struct allow_caller *caller, const struct place_needs *needs,
		struct place_bounds *bounds, struct error *err)
{
	struct place_bounds found = { 0 };
	int r = 0;

	if (needs->host_network)
		r = allow_switch(caller, ALLOW_HOST_NETWORK, err);
	if (r == 0 && needs->root_user)
		r = allow_switch(caller, ALLOW_ROOT_USER, err);
	if (r == 0 && needs->sockets)
		r = allow_switch(caller, ALLOW_SOCKETS, err);
	if (r == 0 && needs->root)
		r = allow_path(caller, ALLOW_ROOT, needs->root, &found.root, err);
	for (size_t i = 0; r == 0 && i < needs->mount_count; i++) {
		bool writable = needs->mounts[i].writable;

		if (writable)
			r = allow_switch(caller, ALLOW_WRITABLE_MOUNTS, err);
		if (r == 0)
			r = allow_path(caller, writable ? ALLOW_MOUNT_RW : ALLOW_MOUNT,
				       needs->mounts[i].source, &found.mounts[i], err);
	}
	if (r == 0 && bounds) {
		place_bounds_clear(bounds);
		*bounds = found;
	} else {
		place_bounds_clear(&found);
	}
	return r;
}
