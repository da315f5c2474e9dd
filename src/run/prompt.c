#include "run/prompt.h"

#include "base/text.h"
#include "record/trust.h"
#include "adapter/adapter.h"
#include "run/service.h"

/* Who runs the prompt, with which settings. */
struct asked {
	struct agent agent; /* empty when the run has none */
	const struct adapter *adapter;
	json_t *config; /* the agent's with the run's laid over it */
};

static void asked_clear(struct asked *asked)
{
	agent_clear(&asked->agent);
	json_decref(asked->config);
}

/* The prompt is the command's standard input, and the adapter says what the command is. */
static int check_combination(const json_t *body, struct error *err)
{
	static const char *const WITH_PROMPT[] = { "adapterType", "adapterConfig" };
	static const char *const WITH_COMMAND[] = { "stdin", "stdinEncoding", "stdinStream",
						    "tty" };
	bool prompt = json_str(body, "prompt") != NULL;

	if (prompt == (json_array_at(body, "command") != NULL))
		return error_set(err, ERR_VALIDATION,
				 "Validation error: a run names either a command or a prompt%s",
				 prompt ? ", not both" : "");
	if (prompt && str_blank(json_str(body, "prompt")))
		return error_set(err, ERR_VALIDATION, "Validation error: prompt must not be blank");
	for (size_t i = 0; !prompt && i < ARRAY_SIZE(WITH_PROMPT); i++) {
		if (json_state(body, WITH_PROMPT[i]) == JSON_IS_VALUE)
			return error_set(err, ERR_VALIDATION,
					 "Validation error: %s goes with a prompt, not a command",
					 WITH_PROMPT[i]);
	}
	for (size_t i = 0; prompt && i < ARRAY_SIZE(WITH_COMMAND); i++) {
		if (json_state(body, WITH_COMMAND[i]) == JSON_IS_VALUE)
			return error_set(err, ERR_VALIDATION,
					 "Validation error: %s goes with a command: a prompt is "
					 "itself the standard input",
					 WITH_COMMAND[i]);
	}
	return 0;
}

static int find_agent(struct runs *runs, const char *company_id, const json_t *body,
		      struct asked *asked, struct error *err)
{
	const char *id = json_str(body, "agentId");

	if (!id)
		return 0;
	if (agent_get(runs->db, id, &asked->agent, err) < 0 && err->code != ERR_NOT_FOUND)
		return -1;
	if (!str_equal(asked->agent.company_id, company_id))
		return error_set(err, ERR_UNPROCESSABLE,
				 "agentId \"%s\" was not found in this company", id);
	return 0;
}

static int find_adapter(const json_t *body, struct asked *asked, struct error *err)
{
	const char *wanted = json_str(body, "adapterType"), *own = asked->agent.adapter_type;
	const char *type = wanted ? wanted : own;

	if (!type)
		return error_set(err, ERR_VALIDATION,
				 "Validation error: a prompt needs an adapterType, or an agentId "
				 "whose adapter is used");
	if (own && !streq(type, own))
		return error_set(err, ERR_UNPROCESSABLE,
				 "agent \"%s\" uses adapter \"%s\": leave adapterType out or "
				 "choose another agent",
				 asked->agent.name, own);
	asked->adapter = adapter_find(type);
	if (!asked->adapter)
		return error_set(err, ERR_UNSUPPORTED_ADAPTER,
				 "adapter \"%s\" is not one this server can start (see "
				 "GET /api/adapters)",
				 type);
	return 0;
}

static int find_config(const json_t *body, struct asked *asked, struct error *err)
{
	const json_t *own = json_object_at(body, "adapterConfig");
	const json_t *base = asked->agent.adapter_config;

	if (own && adapter_config_check(asked->adapter, own, true, err) < 0)
		return -1;
	if (base && adapter_config_check(asked->adapter, base, false, err) < 0) {
		error_wrap(err, "agent \"%s\"", asked->agent.name);
		return error_recode(err, ERR_UNPROCESSABLE);
	}
	asked->config = adapter_config_lay(base, own);
	return 0;
}

/* Who decided what the agent's tool is, and with which settings it is started. */
static enum trust command_writer(const struct agent *agent)
{
	return trust_weaker(deciding_trust(agent->trust, "adapterType"),
			    deciding_trust(agent->trust, "adapterConfig"));
}

/* What the run itself says wins over what its adapter says. */
static json_t *plain_request(const json_t *body, const struct asked *asked,
			     const struct adapter_command *command)
{
	json_t *plain = json_copy((json_t *)body);
	json_t *own_env = json_object_at(body, "env"), *env = json_copy(command->env);

	if (own_env)
		json_object_update(env, own_env);
	json_object_del(plain, "prompt");
	json_object_del(plain, "adapterConfig");
	json_object_del(plain, "stdinEncoding");
	json_put_str(plain, "adapterType", asked->adapter->type);
	json_put_new(plain, "command", json_from_strv(command->argv));
	json_put_new(plain, "env", env);
	json_put_str(plain, "stdin", command->input);
	if (!json_str(body, "cwd") && command->cwd)
		json_put_str(plain, "cwd", command->cwd);
	if (json_int(body, "timeoutMs", 0) == 0 && command->timeout_ms > 0)
		json_put_int(plain, "timeoutMs", command->timeout_ms);
	if (command->timeout_ms < 0)
		json_put_bool(plain, "withoutEnd", true);
	if (id_is_set(asked->agent.id))
		json_put_str(plain, "commandTrust", trust_word(command_writer(&asked->agent)));
	return plain;
}

int prompt_resolve(struct runs *runs, const char *company_id, const char *run_id,
		   const json_t *body, json_t **plain, struct error *err)
{
	_cleanup_(asked_clear) struct asked asked = { 0 };
	_cleanup_(adapter_command_clear) struct adapter_command command = { 0 };
	struct adapter_prompt prompt = { .text = json_str(body, "prompt"),
					 .run_id = run_id,
					 .company_id = company_id };

	if (check_combination(body, err) < 0)
		return -1;
	if (!prompt.text) {
		*plain = json_incref((json_t *)body);
		return 0;
	}
	if (find_agent(runs, company_id, body, &asked, err) < 0 ||
	    find_adapter(body, &asked, err) < 0 || find_config(body, &asked, err) < 0)
		return -1;
	if (id_is_set(asked.agent.id)) {
		prompt.agent_id = asked.agent.id;
		prompt.agent_name = asked.agent.name;
	}
	if (adapter_command(asked.adapter, asked.config, &prompt, &command, err) < 0)
		return -1;
	*plain = plain_request(body, &asked, &command);
	return 0;
}

int64_t run_time_limit(const struct run *run, const json_t *config)
{
	const json_t *wall = json_object_get(json_object_at(config, "limits"), "wallSeconds");
	const json_t *request = json_object_at(run->context, "request");
	const json_t *place = json_object_at(run->context, "paperclipEnvironment");
	const char *driver = json_str(place, "driver");

	if (json_integer_value(wall) > 0 && run->timeout_ms > 0)
		return MIN_OF(run->timeout_ms, json_integer_value(wall) * 1000);
	if (wall && run->timeout_ms <= 0)
		return json_integer_value(wall) * 1000;
	if (run->timeout_ms > 0 || json_bool(request, "withoutEnd", false))
		return run->timeout_ms;
	if (!driver || streq(driver, driver_kind_name(DRIVER_LOCAL)) ||
	    streq(driver, driver_kind_name(DRIVER_SSH)))
		return 0;
	return ADAPTER_SANDBOX_TIMEOUT_MS;
}
