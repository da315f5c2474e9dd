/*
 * From an adapter, its config and a prompt to what a place is asked to run.
 */
#include "adapter/adapter.h"

#include "base/text.h"

#define INPUT_MAX (2 << 20)
#define DEFAULT_ACP_AGENT "codex"

void adapter_command_clear(struct adapter_command *command)
{
	strv_free(command->argv);
	free(command->cwd);
	json_decref(command->env);
	if (command->input)
		wipe(command->input, strlen(command->input));
	free(command->input);
	*command = (struct adapter_command){ 0 };
}

static void push_words(char ***argv, const char *const *words, const json_t *config)
{
	const char *agent = json_str_nonblank(config, "agent");

	for (; words && *words; words++)
		strv_push(argv, xstrdup(!streq(*words, "{agent}") ? *words
					: agent                   ? agent
								  : DEFAULT_ACP_AGENT));
}

static void push_array(char ***argv, const json_t *array)
{
	const json_t *word;
	size_t i;

	json_array_foreach (array, i, word) {
		strv_push(argv, xstrdup(json_string_value(word)));
	}
}

static int build_argv(const struct adapter *adapter, const json_t *config, char ***argv,
		      struct error *err)
{
	const char *program = json_str_nonblank(config, "command");
	const char *model = json_str_nonblank(config, "model");

	if (!program)
		program = adapter->program;
	if (!program)
		return error_set(err, ERR_UNPROCESSABLE,
				 "adapter \"%s\" needs adapterConfig.command: the program to run",
				 adapter->type);
	strv_push(argv, xstrdup(program));
	push_words(argv, adapter->arguments, config);
	if (model && adapter->model_flag) {
		strv_push(argv, xstrdup(adapter->model_flag));
		strv_push(argv, xstrdup(model));
	}
	push_array(argv, json_array_at(config, "args"));
	push_array(argv, json_array_at(config, "extraArgs"));
	push_words(argv, adapter->closing, config);
	return 0;
}

int adapter_environment(const json_t *config, json_t **env, struct error *err)
{
	_cleanup_json_ json_t *out = json_object();
	const char *name;
	json_t *value;

	json_object_foreach (json_object_at(config, "env"), name, value) {
		if (str_equal(json_str(value, "type"), "secret_ref"))
			return error_set(
				err, ERR_UNPROCESSABLE,
				"adapterConfig.env.%.64s is a reference to a secret, which "
				"this server cannot resolve: give the value with the run",
				name);
		if (json_is_null(value))
			continue;
		json_put_str(out, name,
			     json_is_string(value) ? json_string_value(value)
						   : json_str(value, "value"));
	}
	*env = steal(out);
	return 0;
}

/* Rounded up, so that a fraction of a millisecond does not become "without end". */
static int64_t timeout_of(const json_t *config)
{
	double seconds = json_number_value(json_object_get(config, "timeoutSec"));

	if (seconds < 0)
		return -1;
	return seconds > 0 ? MAX_OF((int64_t)(seconds * 1000 + 0.5), 1) : 0;
}

/* The value of the placeholder that begins at `at`, and how long the placeholder is. */
static const char *placeholder(const char *at, const struct adapter_prompt *p, size_t *len)
{
	const struct {
		const char *name, *value;
	} known[] = {
		{ "{{prompt}}", p->text },           { "{{runId}}", p->run_id },
		{ "{{run.id}}", p->run_id },         { "{{companyId}}", p->company_id },
		{ "{{agentId}}", p->agent_id },      { "{{agent.id}}", p->agent_id },
		{ "{{agent.name}}", p->agent_name },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (str_starts(at, known[i].name)) {
			*len = strlen(known[i].name);
			return known[i].value ? known[i].value : "";
		}
	}
	return NULL;
}

/* Braces that are no placeholder of ours stay as they are; what is put in is not looked at again.
 */
static int build_input(const char *template, const struct adapter_prompt *p, char **input,
		       struct error *err)
{
	_cleanup_buf_ struct buf out = { .max = INPUT_MAX };

	for (const char *at = template; template && *at;) {
		size_t len = 1;
		const char *value = *at == '{' ? placeholder(at, p, &len) : NULL;

		if (value)
			buf_puts(&out, value);
		else
			buf_append(&out, at, len);
		at += len;
	}
	if (!template || !strstr(template, "{{prompt}}")) {
		if (out.len)
			buf_puts(&out, "\n\n");
		buf_puts(&out, p->text);
	}
	if (out.overflow)
		return error_set(err, ERR_TOO_LARGE,
				 "prompt and promptTemplate come to more than %d bytes", INPUT_MAX);
	*input = buf_steal(&out);
	return 0;
}

static int fill(const struct adapter *adapter, const json_t *config,
		const struct adapter_prompt *prompt, struct adapter_command *out, struct error *err)
{
	const char *cwd = json_str_nonblank(config, "cwd");

	if (!adapter->config)
		return error_set(err, ERR_UNSUPPORTED_ADAPTER,
				 "adapter \"%s\" calls a service of its own: it has no command to "
				 "start in a place",
				 adapter->type);
	if (build_argv(adapter, config, &out->argv, err) < 0 ||
	    adapter_environment(config, &out->env, err) < 0)
		return -1;
	out->cwd = cwd ? str_trimmed(cwd) : NULL;
	out->timeout_ms = timeout_of(config);
	if (!prompt)
		return 0;
	return build_input(json_str_nonblank(config, "promptTemplate"), prompt, &out->input, err);
}

int adapter_command(const struct adapter *adapter, const json_t *config,
		    const struct adapter_prompt *prompt, struct adapter_command *out,
		    struct error *err)
{
	*out = (struct adapter_command){ 0 };
	if (fill(adapter, config, prompt, out, err) == 0)
		return 0;
	adapter_command_clear(out);
	return -1;
}
