#include "record_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "record/allow.h"

struct host {
	char dir[64];
	char *tools, *other, *link;
};

static void host_make(struct host *h)
{
	snprintf(h->dir, sizeof(h->dir), "/tmp/berth-allow.XXXXXX");
	assert_non_null(mkdtemp(h->dir));
	h->tools = xasprintf("%s/tools", h->dir);
	h->other = xasprintf("%s/tools-too", h->dir);
	h->link = xasprintf("%s/link", h->tools);
	assert_int_equal(mkdir(h->tools, 0755), 0);
	assert_int_equal(mkdir(h->other, 0755), 0);
	assert_int_equal(symlink(h->other, h->link), 0);
}

static void host_clear(struct host *h)
{
	dir_remove_tree(AT_FDCWD, h->dir, NULL);
	free(h->tools);
	free(h->other);
	free(h->link);
}
#define _cleanup_host_ _cleanup_(host_clear)

static void a_list_opens_what_really_is_below_it(void **state)
{
	struct records *r = records_of(state);
	_cleanup_host_ struct host h = { 0 };
	struct allow allow = { 0 };
	struct allow_caller caller = { &allow, r->db, r->company.id, false };
	_cleanup_free_ char *within = NULL, *missing = NULL;

	host_make(&h);
	missing = xasprintf("%s/missing", h.tools);
	allow.list[ALLOW_MOUNT] = (char *[]){ h.tools, NULL };
	assert_done(r, allow_path(&caller, ALLOW_MOUNT, h.tools, &within, &r->err));
	assert_string_equal(within, h.tools);
	assert_done(r, allow_path(&caller, ALLOW_MOUNT, missing, NULL, &r->err));
	/* By whole names, where links lead, and one list is not the other. */
	assert_refused(r, ERR_FORBIDDEN, allow_path(&caller, ALLOW_MOUNT, h.other, NULL, &r->err));
	assert_refused(r, ERR_FORBIDDEN, allow_path(&caller, ALLOW_MOUNT, h.link, NULL, &r->err));
	for (enum allow_list list = 0; list < ALLOW_LISTS; list++) {
		if (list == ALLOW_MOUNT)
			continue;
		assert_int_equal(allow_path(&caller, list, h.tools, NULL, &r->err), -1);
		assert_int_equal(r->err.code, ERR_FORBIDDEN);
		assert_non_null(strstr(r->err.message, ALLOW_LIST_FLAGS[list]));
		error_clear(&r->err);
	}
	/* What can be written can be read. */
	allow.list[ALLOW_MOUNT_RW] = (char *[]){ h.other, NULL };
	assert_done(r, allow_path(&caller, ALLOW_MOUNT, h.link, NULL, &r->err));
	caller.allow = NULL;
	assert_refused(r, ERR_FORBIDDEN, allow_path(&caller, ALLOW_MOUNT, h.tools, NULL, &r->err));
}

static void an_entry_of_one_company_serves_no_other(void **state)
{
	struct records *r = records_of(state);
	_cleanup_host_ struct host h = { 0 };
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_free_ char *by_name = NULL, *by_id = NULL;
	struct allow allow = { 0 };
	struct allow_caller ours = { &allow, r->db, r->company.id, false }, theirs = ours;

	host_make(&h);
	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Other", NULL, &other,
				      &r->err));
	theirs.company_id = other.id;
	by_name = xasprintf("%s=%s", r->company.name, h.tools);
	by_id = xasprintf("%s=%s", r->company.id, h.tools);
	for (int i = 0; i < 2; i++) {
		allow.list[ALLOW_ROOT] = (char *[]){ i ? by_id : by_name, NULL };
		assert_done(r, allow_path(&ours, ALLOW_ROOT, h.tools, NULL, &r->err));
		assert_refused(r, ERR_FORBIDDEN,
			       allow_path(&theirs, ALLOW_ROOT, h.tools, NULL, &r->err));
	}
}

static void what_a_config_needs_is_judged_together(void **state)
{
	struct records *r = records_of(state);
	_cleanup_host_ struct host h = { 0 };
	_cleanup_(place_bounds_clear) struct place_bounds bounds = { 0 };
	struct allow allow = { 0 };
	struct allow_caller caller = { &allow, r->db, r->company.id, false };
	const struct allow_caller own = { .trusted = true };

	host_make(&h);

	const struct place_needs needs = {
		.root = h.tools,
		.mounts = { { h.tools, false }, { h.other, true } },
		.mount_count = 2,
		.host_network = true,
		.root_user = true,
	};

	assert_refused(r, ERR_FORBIDDEN, allow_needs(&caller, &needs, NULL, &r->err));
	allow.open[ALLOW_HOST_NETWORK] = true;
	assert_refused(r, ERR_FORBIDDEN, allow_needs(&caller, &needs, NULL, &r->err));
	allow.open[ALLOW_ROOT_USER] = true;
	allow.list[ALLOW_ROOT] = allow.list[ALLOW_MOUNT] = (char *[]){ h.dir, NULL };
	assert_refused(r, ERR_FORBIDDEN, allow_needs(&caller, &needs, NULL, &r->err));
	/* Neither the switch nor the list alone. */
	allow.open[ALLOW_WRITABLE_MOUNTS] = true;
	assert_refused(r, ERR_FORBIDDEN, allow_needs(&caller, &needs, NULL, &r->err));
	allow.list[ALLOW_MOUNT_RW] = (char *[]){ h.other, NULL };
	allow.open[ALLOW_WRITABLE_MOUNTS] = false;
	assert_refused(r, ERR_FORBIDDEN, allow_needs(&caller, &needs, NULL, &r->err));
	allow.open[ALLOW_WRITABLE_MOUNTS] = true;
	assert_done(r, allow_needs(&caller, &needs, &bounds, &r->err));
	assert_string_equal(bounds.root, h.dir);
	assert_string_equal(bounds.mounts[1], h.other);
	assert_done(r, allow_needs(&own, &needs, &bounds, &r->err));
	assert_string_equal(bounds.mounts[1], "/");
}

static void entries_are_clean_paths_with_or_without_a_company(void **state)
{
	static const char *const GOOD[] = { "/srv", "acme=/srv", "A B=/srv/x", "/srv/a=/b" };
	static const char *const BAD[] = { "",           "srv",      "/srv/",
					   "/srv/../x",  "acme=srv", "=/srv",
					   "acme=/srv/", "acme=//x", "acme" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(GOOD); i++)
		assert_int_equal(allow_entry_check(GOOD[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(BAD); i++)
		assert_int_equal(allow_entry_check(BAD[i], NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_SQLITE(a_list_opens_what_really_is_below_it),
		ON_BOTH(an_entry_of_one_company_serves_no_other),
		ON_SQLITE(what_a_config_needs_is_judged_together),
		cmocka_unit_test(entries_are_clean_paths_with_or_without_a_company),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
