#include "record/trust.h"

#include "base/text.h"

static const char *const WORDS[] = {
	[TRUST_AGENT] = "agent",
	[TRUST_TOKEN] = "token",
	[TRUST_LOCAL] = "local",
};

const struct deciding DECIDING[] = {
	{ DECIDING_AGENT, "defaultEnvironmentId", DECIDES_PLACE },
	{ DECIDING_AGENT, "adapterType", DECIDES_COMMAND },
	{ DECIDING_AGENT, "adapterConfig", DECIDES_COMMAND },
	{ DECIDING_AGENT, "adapterConfig.env", DECIDES_VARIABLES },
	{ DECIDING_AGENT, "runtimeConfig", DECIDES_COMMAND },
	{ DECIDING_AGENT, "permissions", DECIDES_RIGHTS },
	{ DECIDING_AGENT, "role", DECIDES_RIGHTS },

	{ DECIDING_PROJECT, "executionWorkspacePolicy.environmentId", DECIDES_PLACE },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.workspaceStrategy.provisionCommand",
	  DECIDES_COMMAND },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.workspaceStrategy.teardownCommand",
	  DECIDES_COMMAND },
	{ DECIDING_PROJECT, "executionWorkspacePolicy.workspaceRuntime", DECIDES_COMMAND },
	{ DECIDING_PROJECT, "env", DECIDES_VARIABLES },

	{ DECIDING_ISSUE, "executionWorkspaceSettings.environmentId", DECIDES_PLACE },
	{ DECIDING_ISSUE, "executionWorkspaceSettings.workspaceStrategy.provisionCommand",
	  DECIDES_COMMAND },
	{ DECIDING_ISSUE, "executionWorkspaceSettings.workspaceStrategy.teardownCommand",
	  DECIDES_COMMAND },
	{ DECIDING_ISSUE, "executionWorkspaceSettings.workspaceRuntime", DECIDES_COMMAND },
	{ DECIDING_ISSUE, "projectId", DECIDES_LINK },
	{ DECIDING_ISSUE, "assigneeAgentId", DECIDES_LINK },
	{ DECIDING_ISSUE, "executionWorkspaceId", DECIDES_LINK },
	{ DECIDING_ISSUE, "executionWorkspacePreference", DECIDES_LINK },

	{ DECIDING_WORKSPACE, "config.environmentId", DECIDES_PLACE },
	{ DECIDING_WORKSPACE, "config.provisionCommand", DECIDES_COMMAND },
	{ DECIDING_WORKSPACE, "config.teardownCommand", DECIDES_COMMAND },
	{ DECIDING_WORKSPACE, "config.cleanupCommand", DECIDES_COMMAND },
	{ DECIDING_WORKSPACE, "config.workspaceRuntime", DECIDES_COMMAND },
	{ DECIDING_WORKSPACE, "cwd", DECIDES_DIRECTORY },
	/* A workspace that is closed decides nothing any more, so the next level does. */
	{ DECIDING_WORKSPACE, "status", DECIDES_LINK },
	{ DECIDING_WORKSPACE, "sourceIssueId", DECIDES_LINK },

	/* The name, too: a server's default environment is found by it. */
	{ DECIDING_ENVIRONMENT, "name", DECIDES_WALLS },
	{ DECIDING_ENVIRONMENT, "driver", DECIDES_WALLS },
	{ DECIDING_ENVIRONMENT, "status", DECIDES_WALLS },
	{ DECIDING_ENVIRONMENT, "config", DECIDES_WALLS },
	{ DECIDING_ENVIRONMENT, "metadata", DECIDES_WALLS },

	{ DECIDING_RUN, "environmentId", DECIDES_PLACE },
	{ DECIDING_RUN, "agentId", DECIDES_LINK },
	{ DECIDING_RUN, "projectId", DECIDES_LINK },
	{ DECIDING_RUN, "issueId", DECIDES_LINK },
	{ DECIDING_RUN, "executionWorkspaceId", DECIDES_LINK },
	{ 0 },
};

enum trust actor_trust(const struct actor *actor)
{
	switch (actor->kind) {
	case ACTOR_LOCAL:
		return TRUST_LOCAL;
	case ACTOR_USER:
		return actor->no_local ? TRUST_TOKEN : TRUST_LOCAL;
	case ACTOR_NOBODY:
		/* The server's own acts; a caller who is not known writes nothing. */
		return streq(actor->type, ACTOR_SYSTEM.type) ? TRUST_LOCAL : TRUST_AGENT;
	default:
		return TRUST_AGENT;
	}
}

const char *trust_word(enum trust trust)
{
	return WORDS[trust];
}

enum trust trust_read(const char *word)
{
	for (size_t i = 0; word && i < ARRAY_SIZE(WORDS); i++) {
		if (streq(word, WORDS[i]))
			return (enum trust)i;
	}
	return TRUST_TOKEN;
}

int refuse_local(struct error *err)
{
	return error_set(err, ERR_FORBIDDEN,
			 "places of driver local are not open to tokens on this server: choose "
			 "another environment, or start it with --allow-local-for-tokens");
}

bool decides_for_agents(enum decides decides)
{
	return decides == DECIDES_LINK || decides == DECIDES_WALLS;
}

static const json_t *value_at(const json_t *json, const char *path)
{
	while (json) {
		size_t len = strcspn(path, ".");
		_cleanup_free_ char *key = xstrndup(path, len);

		json = json_object_get(json, key);
		if (!path[len])
			return json;
		path += len + 1;
	}
	return NULL;
}

/*
 * Nothing at all, null and an empty object decide the same; but null as the choice of a place is
 * one: the company's default. An agent's null is not, since its default is the last level.
 */
static const json_t *decided(const struct deciding *d, const json_t *record)
{
	const json_t *value = value_at(record, d->path);
	bool null_is_a_choice = d->decides == DECIDES_PLACE && d->record != DECIDING_AGENT;

	if (json_is_null(value) && !null_is_a_choice)
		return NULL;
	return json_is_object(value) && json_object_size(value) == 0 ? NULL : value;
}

static bool is_same(const struct deciding *d, const json_t *before, const json_t *after)
{
	const json_t *a = decided(d, before), *b = decided(d, after);

	return a == b || (a && b && json_equal(a, b));
}

static bool is_forbidden(const struct writer *writer, const struct deciding *d)
{
	if (actor_is_agent(writer->actor))
		return !decides_for_agents(d->decides);
	return d->decides == DECIDES_VARIABLES && writer->no_variables;
}

int deciding_check(const struct writer *writer, enum deciding_record record, const json_t *before,
		   const json_t *after, struct error *err)
{
	_cleanup_buf_ struct buf named = { 0 };

	for (const struct deciding *d = DECIDING; d->path; d++) {
		if (d->record != record || !is_forbidden(writer, d) || is_same(d, before, after))
			continue;
		buf_printf(&named, "%s%s", named.len ? ", " : "", d->path);
	}
	if (!named.len)
		return 0;
	if (actor_is_agent(writer->actor))
		return error_set(
			err, ERR_FORBIDDEN,
			"agents may not change what decides where and how something runs: %s",
			buf_str(&named));
	return error_set(err, ERR_FORBIDDEN,
			 "Missing permission: environments:manage (to change %s)", buf_str(&named));
}

enum trust deciding_trust(const json_t *trust, const char *path)
{
	return trust_read(json_str(trust, path));
}

static void put(json_t **trust, const char *path, enum trust word)
{
	if (!*trust)
		*trust = json_object();
	json_put_str(*trust, path, trust_word(word));
}

void deciding_weaken(json_t **trust, const char *path, enum trust other)
{
	put(trust, path, trust_weaker(deciding_trust(*trust, path), other));
}

static bool is_nothing(const json_t *value)
{
	return !value || json_is_null(value);
}

void deciding_note(const struct actor *actor, enum deciding_record record, const json_t *before,
		   const json_t *body, const json_t *after, json_t **trust)
{
	enum trust writer = actor_trust(actor);

	for (const struct deciding *d = DECIDING; d->path; d++) {
		const json_t *now = value_at(after, d->path), *said = value_at(body, d->path);
		enum trust was;
		bool stated = said && (now ? json_equal(said, now) : json_is_null(said));

		if (d->record != record)
			continue;
		was = deciding_trust(*trust, d->path);
		if (!before)
			put(trust, d->path, writer);
		else if (!is_same(d, before, after))
			put(trust, d->path,
			    stated || is_nothing(now) ? writer : trust_weaker(was, writer));
		else if (stated && writer > was)
			put(trust, d->path, writer);
	}
}
