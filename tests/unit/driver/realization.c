#include "drivers.h"

#define REQUEST                                                                                    \
	"{\"version\":1,\"adapterType\":\"codex_local\",\"companyId\":\"c\","                      \
	"\"environmentId\":\"" ENV_1 "\",\"executionWorkspaceId\":\"w\",\"issueId\":null,"         \
	"\"heartbeatRunId\":\"" RUN_1 "\",\"requestedMode\":\"isolated_workspace\","               \
	"\"source\":{\"kind\":\"agent_home\",\"localPath\":\"/host/ws\",\"projectId\":\"p\","      \
	"\"projectWorkspaceId\":null,\"repoUrl\":\"git@x:y\",\"repoRef\":\"main\","                \
	"\"strategy\":\"git_worktree\",\"branchName\":\"b\",\"worktreePath\":\"/host/wt\"},"       \
	"\"runtimeOverlay\":{\"provisionCommand\":\"make setup\",\"teardownCommand\":null,"        \
	"\"cleanupCommand\":\"  \",\"workspaceRuntime\":{}}}"

static json_t *record_of(struct fixture *f, enum driver_kind kind, const char *provider,
			 const char *metadata, const struct place_workspace *workspace, char **cwd)
{
	_cleanup_json_ json_t *said = J(metadata);
	_cleanup_(place_realization_clear) struct place_realization realization = { 0 };
	struct place place = {
		.id = PLACE_1,
		.environment_id = ENV_1,
		.driver = kind,
		.provider = (char *)provider,
		.provider_ref = (char *)"ref-1",
		.metadata = said,
	};

	if (kind == DRIVER_SSH || kind == DRIVER_PLUGIN)
		return realization_record(&place, LEASE_1, workspace, NULL);
	assert_int_equal(maker_realize(f->makers, &place, LEASE_1, workspace, &realization, NULL),
			 0);
	if (cwd)
		*cwd = xstrdup(realization.cwd);
	return json_incref(json_object_get(realization.metadata, "workspaceRealization"));
}

static void a_sandbox_record_is_complete(void **state)
{
	_cleanup_json_ json_t *request = J(REQUEST);
	_cleanup_free_ char *cwd = NULL;
	struct place_workspace workspace = { .local_path = "/ignored", .request = request };
	_cleanup_json_ json_t *record =
		record_of(*state, DRIVER_SANDBOX, "fake",
			  "{\"remoteCwd\":\" /box/ws \",\"sandboxId\":\"s1\",\"port\":\"22\"}",
			  &workspace, &cwd);
	_cleanup_json_ json_t *sync = json_deep_copy(json_object_at(record, "sync"));

	assert_string_equal(cwd, "/box/ws");
	assert_string_equal(json_str(sync, "strategy"), "sandbox_archive_upload_download");
	assert_non_null(json_str_nonblank(sync, "prepare"));
	assert_non_null(json_str_nonblank(sync, "syncBack"));
	assert_non_null(strstr(json_str(record, "summary"), "/box/ws"));
	json_object_del(record, "sync");
	json_object_del(record, "summary");
#define SOURCE                                                                                     \
	"\"projectId\":\"p\",\"projectWorkspaceId\":null,\"repoUrl\":\"git@x:y\","                 \
	"\"repoRef\":\"main\",\"strategy\":\"git_worktree\",\"branchName\":\"b\","                 \
	"\"worktreePath\":\"/host/wt\""
	assert_json(record,
		    "{\"version\":1,\"transport\":\"sandbox\",\"provider\":\"fake\","
		    "\"environmentId\":\"" ENV_1 "\",\"leaseId\":\"" LEASE_1 "\","
		    "\"providerLeaseId\":\"ref-1\","
		    "\"local\":{\"path\":\"/host/ws\",\"source\":\"agent_home\"," SOURCE "},"
		    "\"remote\":{\"path\":\"/box/ws\",\"sandboxId\":\"s1\"},"
		    "\"bootstrap\":{\"command\":\"make setup\"},"
		    "\"rebuild\":{\"executionWorkspaceId\":\"w\",\"mode\":\"isolated_workspace\","
		    "\"repoUrl\":\"git@x:y\",\"repoRef\":\"main\",\"localPath\":\"/host/ws\","
		    "\"remotePath\":\"/box/ws\",\"providerLeaseId\":\"ref-1\",\"metadata\":{"
		    "\"source\":{\"kind\":\"agent_home\",\"localPath\":\"/host/ws\"," SOURCE "},"
		    "\"runtimeOverlay\":{\"provisionCommand\":\"make setup\","
		    "\"teardownCommand\":null,\"cleanupCommand\":null,\"workspaceRuntime\":null},"
		    "\"environmentDriver\":\"sandbox\",\"provider\":\"fake\","
		    "\"providerMetadata\":null}}}");
}

static void a_local_record_needs_no_sync_and_hides_the_places_name(void **state)
{
	struct place_workspace workspace = { .local_path = "/host/ws", .remote_path = "/r" };
	_cleanup_free_ char *cwd = NULL;
	_cleanup_json_ json_t *record =
		record_of(*state, DRIVER_LOCAL, "local", "{}", &workspace, &cwd);
	json_t *sync = json_object_at(record, "sync");

	assert_string_equal(cwd, "/host/ws");
	assert_string_equal(json_str(record, "transport"), "local");
	assert_int_equal(json_state(record, "providerLeaseId"), JSON_IS_NULL);
	assert_string_equal(json_str(sync, "strategy"), "none");
	assert_int_equal(json_state(sync, "syncBack"), JSON_IS_NULL);
	assert_json(json_object_at(record, "remote"), "{\"path\":null}");
}

static void without_a_readable_request_the_place_speaks_for_itself(void **state)
{
	static const char *const spoiled[] = { "version", "adapterType", "companyId",
					       "environmentId", "heartbeatRunId" };
	struct place_workspace workspace = { .remote_path = "/r", .mode = "shared_workspace" };

	for (size_t i = 0; i <= ARRAY_SIZE(spoiled); i++) {
		_cleanup_json_ json_t *request = J(REQUEST);

		if (i < ARRAY_SIZE(spoiled))
			json_put_str(request, spoiled[i], " ");
		else
			json_put_str(json_object_at(request, "source"), "localPath", "");
		workspace.request = request;

		_cleanup_json_ json_t *record =
			record_of(*state, DRIVER_SANDBOX, "fake", "{}", &workspace, NULL);
		json_t *local = json_object_at(record, "local");

		assert_string_equal(json_str(local, "path"), "/r");
		assert_string_equal(json_str(local, "source"), "task_session");
		assert_string_equal(json_str(local, "strategy"), "project_primary");
		assert_string_equal(json_str(json_object_at(record, "rebuild"), "mode"),
				    "shared_workspace");
	}
}

static void a_workspace_nobody_named_is_the_root(void **state)
{
	struct place_workspace workspace = { 0 };
	_cleanup_free_ char *local = NULL, *sandbox = NULL;

	json_decref(record_of(*state, DRIVER_LOCAL, "local", "{}", &workspace, &local));
	json_decref(record_of(*state, DRIVER_SANDBOX, "fake", "{}", &workspace, &sandbox));
	assert_string_equal(local, "/");
	assert_string_equal(sandbox, "/");
}

static void unknown_words_of_the_request_become_the_plainest_ones(void **state)
{
	_cleanup_json_ json_t *request = J(REQUEST);
	struct place_workspace workspace = { .request = request };

	json_put_str(json_object_at(request, "source"), "kind", "moon");
	json_put_int(json_object_at(request, "source"), "strategy", 7);

	_cleanup_json_ json_t *record =
		record_of(*state, DRIVER_LOCAL, "local", "{}", &workspace, NULL);

	assert_string_equal(json_str(json_object_at(record, "local"), "source"), "project_primary");
	assert_string_equal(json_str(json_object_at(record, "local"), "strategy"),
			    "project_primary");
}

static void every_transport_has_its_own_sync(void **state)
{
	struct place_workspace workspace = { .local_path = "/w" };
	_cleanup_json_ json_t *ssh = record_of(
		*state, DRIVER_SSH, NULL,
		"{\"host\":\"h\",\"port\":2222,\"username\":\"u\",\"remoteCwd\":\"/srv\"}",
		&workspace, NULL);
	_cleanup_json_ json_t *plugin =
		record_of(*state, DRIVER_PLUGIN, NULL, "{}", &workspace, NULL);

	assert_string_equal(json_str(ssh, "provider"), "ssh");
	assert_string_equal(json_str(json_object_at(ssh, "sync"), "strategy"),
			    "ssh_git_import_export");
	assert_json(json_object_at(ssh, "remote"),
		    "{\"path\":\"/srv\",\"host\":\"h\",\"port\":2222,\"username\":\"u\"}");
	assert_int_equal(json_state(plugin, "provider"), JSON_IS_NULL);
	assert_string_equal(json_str(json_object_at(plugin, "sync"), "strategy"),
			    "provider_defined");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		driver_test(a_sandbox_record_is_complete),
		driver_test(a_local_record_needs_no_sync_and_hides_the_places_name),
		driver_test(without_a_readable_request_the_place_speaks_for_itself),
		driver_test(a_workspace_nobody_named_is_the_root),
		driver_test(unknown_words_of_the_request_become_the_plainest_ones),
		driver_test(every_transport_has_its_own_sync),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
