/*
 * The record of how a workspace came to be where it is (spec 01 E.5): everything somebody needs to
 * explain it, or to build it again. It is made of the request the run sent along; a request that
 * cannot be read is replaced by what the place alone can tell.
 */
#include "driver/maker.h"

#include <string.h>
#include "base/text.h"

#define SOURCE_KINDS(X) X("project_primary") X("task_session") X("agent_home")
#define SOURCE_STRATEGIES(X) X("project_primary") X("git_worktree")

#define WORD(wire) wire,
static const char *const kinds[] = { SOURCE_KINDS(WORD) NULL };
static const char *const strategies[] = { SOURCE_STRATEGIES(WORD) NULL };
#undef WORD

/* How files get there and back, in words, by the kind of transport. */
static const struct {
	const char *strategy, *prepare, *sync_back;
} SYNC[] = {
	[DRIVER_LOCAL] = { "none", "The workspace is used where it is.", NULL },
	[DRIVER_SSH] = { "ssh_git_import_export",
			 "The local git state is imported into the remote workspace over SSH.",
			 "Commits and changed files are exported back into the local workspace." },
	[DRIVER_SANDBOX] = { "sandbox_archive_upload_download",
			     "The local workspace is packed and unpacked inside the sandbox.",
			     "Changed files are packed in the sandbox and brought back." },
	[DRIVER_PLUGIN] = { "provider_defined", "The plugin prepares the workspace its own way.",
			    "The plugin brings results back its own way." },
};

static const char *one_of(const char *const *words, const char *word)
{
	for (size_t i = 0; word && words[i]; i++) {
		if (streq(words[i], word))
			return words[i];
	}
	return words[0];
}

/* Copies a string with something in it; anything else becomes null. */
static void put_text(json_t *out, const char *key, const json_t *from)
{
	json_put_str(out, key, json_str_nonblank(from, key));
}

static bool is_readable(const json_t *request)
{
	return json_int(request, "version", 0) == 1 && json_str_nonblank(request, "adapterType") &&
	       json_str_nonblank(request, "companyId") &&
	       json_str_nonblank(request, "environmentId") &&
	       json_str_nonblank(request, "heartbeatRunId") &&
	       json_str_nonblank(json_object_at(request, "source"), "localPath");
}

static json_t *source_of(const json_t *request, const struct place_workspace *workspace)
{
	const json_t *from = json_object_at(request, "source");
	const char *path = workspace->local_path ? workspace->local_path : workspace->remote_path;
	json_t *source = json_object();

	json_put_str(source, "kind", from ? one_of(kinds, json_str(from, "kind")) : "task_session");
	json_put_str(source, "localPath", from ? json_str(from, "localPath") : path ? path : "/");
	put_text(source, "projectId", from);
	put_text(source, "projectWorkspaceId", from);
	put_text(source, "repoUrl", from);
	put_text(source, "repoRef", from);
	json_put_str(source, "strategy", one_of(strategies, json_str(from, "strategy")));
	put_text(source, "branchName", from);
	put_text(source, "worktreePath", from);
	return source;
}

static json_t *overlay_of(const json_t *request)
{
	const json_t *from = json_object_at(request, "runtimeOverlay");
	json_t *runtime = json_object_at(from, "workspaceRuntime"), *overlay = json_object();

	put_text(overlay, "provisionCommand", from);
	put_text(overlay, "teardownCommand", from);
	put_text(overlay, "cleanupCommand", from);
	json_put_new(overlay, "workspaceRuntime",
		     json_object_size(runtime) ? json_deep_copy(runtime) : NULL);
	return overlay;
}

static json_t *local_part(const json_t *source)
{
	static const char *const same[] = { "strategy",    "projectId", "projectWorkspaceId",
					    "repoUrl",     "repoRef",   "branchName",
					    "worktreePath" };
	json_t *local = json_object();

	json_put_str(local, "path", json_str(source, "localPath"));
	json_put_str(local, "source", json_str(source, "kind"));
	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		json_put_str(local, same[i], json_str(source, same[i]));
	return local;
}

/* Allocated; the first of the candidates with something in it, trimmed. NULL when there is none. */
static char *remote_path(const json_t *metadata, const json_t *provider_metadata)
{
	const char *candidates[] = {
		json_str_nonblank(provider_metadata, "remoteCwd"),
		json_str_nonblank(metadata, "remoteCwd"),
		json_str_nonblank(provider_metadata, "remotePath"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(candidates); i++) {
		if (candidates[i])
			return str_trimmed(candidates[i]);
	}
	return NULL;
}

/* A key that is not known is absent there, not null. */
static json_t *remote_part(const char *path, const json_t *metadata,
			   const json_t *provider_metadata)
{
	json_t *remote = json_object(), *port = json_object_get(metadata, "port");
	const char *sandbox = json_str_nonblank(metadata, "sandboxId");

	if (!sandbox)
		sandbox = json_str_nonblank(provider_metadata, "sandboxId");
	json_put_str(remote, "path", path);
	if (json_str_nonblank(metadata, "host"))
		put_text(remote, "host", metadata);
	if (json_is_number(port))
		json_put_ref(remote, "port", port);
	if (json_str_nonblank(metadata, "username"))
		put_text(remote, "username", metadata);
	if (sandbox)
		json_put_str(remote, "sandboxId", sandbox);
	return remote;
}

static json_t *sync_part(enum driver_kind driver)
{
	json_t *sync = json_object();

	json_put_str(sync, "strategy", SYNC[driver].strategy);
	json_put_str(sync, "prepare", SYNC[driver].prepare);
	json_put_str(sync, "syncBack", SYNC[driver].sync_back);
	return sync;
}

static const char *provider_of(const struct place *place)
{
	if (place->provider)
		return place->provider;
	return place->driver == DRIVER_SSH ? "ssh" : place->driver == DRIVER_LOCAL ? "local" : NULL;
}

/* A local place's name is nobody's business but ours. */
static const char *provider_lease_id(const struct place *place)
{
	return place->driver == DRIVER_LOCAL ? NULL : place->provider_ref;
}

static char *summary_of(const struct place *place, const char *local, const char *remote)
{
	const char *provider = provider_of(place);

	switch (place->driver) {
	case DRIVER_SSH:
		return xasprintf("Workspace %s on %s is brought to %s over SSH.", local,
				 json_str_nonblank(place->metadata, "host")
					 ? json_str(place->metadata, "host")
					 : "an SSH host",
				 remote ? remote : local);
	case DRIVER_SANDBOX:
		return xasprintf("Workspace %s is brought to %s in a %s sandbox.", local,
				 remote ? remote : local, provider ? provider : "provider's");
	case DRIVER_PLUGIN:
		return xasprintf("Workspace %s is realized by %s.", local,
				 provider ? provider : "a plugin");
	default:
		return xasprintf("Workspace %s is used in place on this host.", local);
	}
}

static json_t *rebuild_part(const struct place *place, const struct place_workspace *workspace,
			    const json_t *request, json_t *source, const char *remote,
			    const json_t *provider_metadata)
{
	json_t *rebuild = json_object(), *metadata = json_object();
	const char *mode = request ? json_str_nonblank(request, "requestedMode") : workspace->mode;

	put_text(rebuild, "executionWorkspaceId", request);
	json_put_str(rebuild, "mode", mode);
	put_text(rebuild, "repoUrl", source);
	put_text(rebuild, "repoRef", source);
	json_put_str(rebuild, "localPath", json_str(source, "localPath"));
	json_put_str(rebuild, "remotePath", remote);
	json_put_str(rebuild, "providerLeaseId", provider_lease_id(place));
	json_put_ref(metadata, "source", source);
	json_put_new(metadata, "runtimeOverlay", overlay_of(request));
	json_put_str(metadata, "environmentDriver", driver_kind_name(place->driver));
	json_put_str(metadata, "provider", provider_of(place));
	json_put_new(metadata, "providerMetadata", json_deep_copy(provider_metadata));
	json_put_new(rebuild, "metadata", metadata);
	return rebuild;
}

json_t *realization_record(const struct place *place, const char *lease_id,
			   const struct place_workspace *workspace, const json_t *provider_metadata)
{
	const json_t *request = is_readable(workspace->request) ? workspace->request : NULL;
	_cleanup_json_ json_t *source = source_of(request, workspace);
	_cleanup_free_ char *remote = remote_path(place->metadata, provider_metadata);
	_cleanup_free_ char *summary = summary_of(place, json_str(source, "localPath"), remote);
	json_t *record = json_object(), *bootstrap = json_object();

	json_put_str(
		bootstrap, "command",
		json_str_nonblank(json_object_at(request, "runtimeOverlay"), "provisionCommand"));
	json_put_int(record, "version", 1);
	json_put_str(record, "transport", driver_kind_name(place->driver));
	json_put_str(record, "provider", provider_of(place));
	json_put_str(record, "environmentId", place->environment_id);
	json_put_str(record, "leaseId", lease_id);
	json_put_str(record, "providerLeaseId", provider_lease_id(place));
	json_put_new(record, "local", local_part(source));
	json_put_new(record, "remote", remote_part(remote, place->metadata, provider_metadata));
	json_put_new(record, "sync", sync_part(place->driver));
	json_put_new(record, "bootstrap", bootstrap);
	json_put_new(record, "rebuild",
		     rebuild_part(place, workspace, request, source, remote, provider_metadata));
	json_put_str(record, "summary", summary);
	return record;
}
