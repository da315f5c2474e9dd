/*
 * Completion for three shells, written from the table of verbs. The scripts hold everything: no
 * server is asked and no program is run at every TAB.
 */
#include "base/text.h"
#include "cli/cli.h"

/* The verbs that begin with this word, or the group's own: "env" of "env add". */
static size_t first_word(const struct verb *verb)
{
	return strcspn(verb->name, " ");
}

static bool is_group(const struct verb *verb)
{
	return verb->name[first_word(verb)] == ' ';
}

/* True for the first verb of the table that begins with its word. */
static bool opens_word(const struct verb **verbs, const struct verb **at)
{
	size_t len = first_word(*at);

	for (const struct verb **before = verbs; before < at; before++)
		if (first_word(*before) == len && strncmp((*before)->name, (*at)->name, len) == 0)
			return false;
	return true;
}

static bool same_word(const struct verb *a, const struct verb *b)
{
	return first_word(a) == first_word(b) && strncmp(a->name, b->name, first_word(a)) == 0;
}

static bool is_path(const char *value)
{
	static const char *const PATHS[] = { "FILE", "PATH", "DIR" };

	for (size_t i = 0; value && i < ARRAY_SIZE(PATHS); i++)
		if (streq(value, PATHS[i]))
			return true;
	return false;
}

/* Words in small letters are meant as they are; others name a kind of value. */
static bool is_choice(const char *value)
{
	return value && strchr(value, '|') && value[0] >= 'a' && value[0] <= 'z';
}

/* "text|json" -> "text json" */
static void put_choices(struct buf *out, const char *value)
{
	for (; *value; value++)
		buf_putc(out, *value == '|' ? ' ' : *value);
}

/* Text within single quotes; what has a meaning for the shell's own format gets a backslash. */
static void put_quoted(struct buf *out, const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			buf_puts(out, "'\\''");
		else if (strchr(special, *text))
			buf_printf(out, "\\%c", *text);
		else
			buf_putc(out, *text);
	}
}

#define EACH_FLAG(flag, verb)                                                                      \
	for (const struct flag *const tables[] = { (verb)->flags, GLOBAL_FLAGS, NULL },            \
				      *const *table = tables;                                      \
	     table < tables + 2; table++)                                                          \
		for (const struct flag *flag = *table; flag && flag->name; flag++)

/* ---- bash ---- */

static void bash_verb(struct buf *out, const struct verb *verb)
{
	buf_printf(out, "\t'%s')\n\t\tflags='", verb->name);
	EACH_FLAG(flag, verb)
	buf_printf(out, "--%s ", flag->name);
	buf_puts(out, "'\n\t\tcase $prev in\n");
	EACH_FLAG(flag, verb)
	{
		if (!flag->value)
			continue;
		buf_printf(out, "\t\t--%s) values='", flag->name);
		if (is_choice(flag->value))
			put_choices(out, flag->value);
		buf_printf(out, "' kind=%s ;;\n", is_path(flag->value) ? "path" : "word");
	}
	buf_puts(out, "\t\tesac\n\t\t;;\n");
}

static void bash_words(struct buf *out, const struct verb **verbs)
{
	buf_puts(out, "\tlocal words='");
	for (const struct verb **at = verbs; *at; at++)
		if (opens_word(verbs, at))
			buf_printf(out, "%.*s ", (int)first_word(*at), (*at)->name);
	buf_puts(out, "help'\n\tlocal second=\n\tcase ${COMP_WORDS[1]} in\n");
	for (const struct verb **at = verbs; *at; at++) {
		if (!is_group(*at) || !opens_word(verbs, at))
			continue;
		buf_printf(out, "\t%.*s) second='", (int)first_word(*at), (*at)->name);
		for (const struct verb **v = at; *v; v++)
			if (is_group(*v) && same_word(*v, *at))
				buf_printf(out, "%s ", (*v)->name + first_word(*v) + 1);
		buf_puts(out, "' ;;\n");
	}
	buf_puts(out, "\tesac\n");
}

static void put_bash(struct buf *out, const struct verb **verbs)
{
	buf_puts(out, "# berth completion for bash\n_berth() {\n"
		      "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
		      "\tlocal verb flags values kind\n"
		      "\tCOMPREPLY=()\n");
	bash_words(out, verbs);
	buf_puts(out, "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
		      "\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\t\treturn\n\tfi\n"
		      "\tif [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$second\" ]; then\n"
		      "\t\tCOMPREPLY=($(compgen -W \"$second\" -- \"$cur\"))\n\t\treturn\n\tfi\n"
		      "\tverb=${COMP_WORDS[1]}\n"
		      "\t[ -n \"$second\" ] && verb=\"$verb ${COMP_WORDS[2]}\"\n"
		      "\tcase $verb in\n");
	for (const struct verb **at = verbs; *at; at++)
		bash_verb(out, *at);
	buf_puts(out, "\tesac\n"
		      "\tif [ -n \"$values\" ]; then\n"
		      "\t\tCOMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
		      "\telif [ -n \"$kind\" ]; then\n"
		      "\t\t[ \"$kind\" = path ] && COMPREPLY=($(compgen -f -- \"$cur\"))\n"
		      "\telif [[ $cur == -* ]]; then\n"
		      "\t\tCOMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
		      "\telse\n\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n\tfi\n}\n"
		      "complete -F _berth berth\n");
}

/* ---- zsh ---- */

static void zsh_verb(struct buf *out, const struct verb *verb)
{
	buf_printf(out, "\t'%s')\n\t\t_arguments", verb->name);
	EACH_FLAG(flag, verb)
	{
		buf_printf(out, " \\\n\t\t\t'%s--%s%s[", flag->many ? "*" : "", flag->name,
			   flag->value ? "=" : "");
		put_quoted(out, flag->summary, "[]:\\");
		buf_puts(out, "]");
		if (flag->value) {
			buf_puts(out, ":");
			put_quoted(out, flag->value, "[]:\\");
			buf_puts(out, ":");
			if (is_choice(flag->value)) {
				buf_puts(out, "(");
				put_choices(out, flag->value);
				buf_puts(out, ")");
			} else if (is_path(flag->value)) {
				buf_puts(out, "_files");
			}
		}
		buf_puts(out, "'");
	}
	buf_puts(out, " \\\n\t\t\t'*:argument:_files'\n\t\t;;\n");
}

static void zsh_described(struct buf *out, const char *name, size_t len, const char *summary)
{
	buf_printf(out, " '%.*s:", (int)len, name);
	put_quoted(out, summary, ":\\");
	buf_puts(out, "'");
}

static void put_zsh(struct buf *out, const struct verb **verbs)
{
	buf_puts(out, "#compdef berth\n_berth() {\n\tlocal -a words_of seconds\n\tlocal verb\n"
		      "\twords_of=(");
	for (const struct verb **at = verbs; *at; at++)
		if (opens_word(verbs, at))
			zsh_described(out, (*at)->name, first_word(*at),
				      is_group(*at) ? "..." : (*at)->summary);
	buf_puts(out, ")\n\tcase $words[2] in\n");
	for (const struct verb **at = verbs; *at; at++) {
		if (!is_group(*at) || !opens_word(verbs, at))
			continue;
		buf_printf(out, "\t%.*s) seconds=(", (int)first_word(*at), (*at)->name);
		for (const struct verb **v = at; *v; v++)
			if (is_group(*v) && same_word(*v, *at))
				zsh_described(out, (*v)->name + first_word(*v) + 1,
					      strlen((*v)->name) - first_word(*v) - 1,
					      (*v)->summary);
		buf_puts(out, ") ;;\n");
	}
	buf_puts(out, "\tesac\n\tif (( CURRENT == 2 )); then\n"
		      "\t\t_describe verb words_of\n\t\treturn\n\tfi\n"
		      "\tif (( CURRENT == 3 && $#seconds )); then\n"
		      "\t\t_describe verb seconds\n\t\treturn\n\tfi\n"
		      "\tverb=$words[2]\n"
		      "\tif (( $#seconds )); then\n\t\tverb=\"$verb $words[3]\"\n"
		      "\t\tshift words\n\t\t(( CURRENT-- ))\n\tfi\n"
		      "\tshift words\n\t(( CURRENT-- ))\n\tcase $verb in\n");
	for (const struct verb **at = verbs; *at; at++)
		zsh_verb(out, *at);
	buf_puts(out, "\tesac\n}\n_berth \"$@\"\n");
}

/* ---- fish ---- */

static void fish_line(struct buf *out, const struct verb *verb, const struct flag *flag)
{
	buf_printf(out, "complete -c berth -n '__berth_is %s' -l %s", verb->name, flag->name);
	if (flag->letter)
		buf_printf(out, " -s %c", flag->letter);
	if (flag->value)
		buf_puts(out, is_path(flag->value) ? " -r -F" : " -x");
	if (is_choice(flag->value)) {
		buf_puts(out, " -a '");
		put_choices(out, flag->value);
		buf_puts(out, "'");
	}
	buf_puts(out, " -d '");
	for (const char *p = flag->summary; *p; p++)
		buf_printf(out, *p == '\'' || *p == '\\' ? "\\%c" : "%c", *p);
	buf_puts(out, "'\n");
}

static void fish_word(struct buf *out, const char *condition, const char *name, size_t len,
		      const char *summary)
{
	buf_printf(out, "complete -c berth -f -n '%s' -a '%.*s' -d '", condition, (int)len, name);
	for (const char *p = summary; *p; p++)
		buf_printf(out, *p == '\'' || *p == '\\' ? "\\%c" : "%c", *p);
	buf_puts(out, "'\n");
}

static void put_fish(struct buf *out, const struct verb **verbs)
{
	buf_puts(out, "# berth completion for fish\n"
		      "function __berth_is\n"
		      "\tset -l words (commandline -opc)\n"
		      "\ttest (count $words) -gt (count $argv); or return 1\n"
		      "\tfor i in (seq (count $argv))\n"
		      "\t\ttest $words[(math $i + 1)] = $argv[$i]; or return 1\n"
		      "\tend\nend\n"
		      "function __berth_at\n"
		      "\tset -l words (commandline -opc)\n"
		      "\ttest (count $words) -eq (math (count $argv) + 1); and __berth_is $argv\n"
		      "end\n");
	for (const struct verb **at = verbs; *at; at++) {
		const struct verb *verb = *at;
		size_t len = first_word(verb);

		if (opens_word(verbs, at))
			fish_word(out, "__fish_use_subcommand", verb->name, len,
				  is_group(verb) ? "..." : verb->summary);
		if (is_group(verb)) {
			_cleanup_free_ char *condition =
				xasprintf("__berth_at %.*s", (int)len, verb->name);

			fish_word(out, condition, verb->name + len + 1,
				  strlen(verb->name) - len - 1, verb->summary);
		}
		EACH_FLAG(flag, verb)
		fish_line(out, verb, flag);
	}
}

static const struct {
	const char *name;
	void (*put)(struct buf *out, const struct verb **verbs);
} SHELLS[] = { { "bash", put_bash }, { "zsh", put_zsh }, { "fish", put_fish } };

static int completion(struct cli *cli, const struct args *args)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();
	_cleanup_buf_ struct buf out = { 0 };
	(void)cli;

	for (size_t i = 0; i < ARRAY_SIZE(SHELLS); i++) {
		if (!streq(args->positional[0], SHELLS[i].name))
			continue;
		SHELLS[i].put(&out, verbs);
		fputs(buf_str(&out), stdout);
		return 0;
	}
	fprintf(stderr, "berth: completion supports bash, zsh and fish, not \"%s\"\n",
		args->positional[0]);
	return EXIT_USAGE;
}

VERB(COMPLETION, 680) = {
	.name = "completion",
	.arguments = "bash|zsh|fish",
	.summary = "print a shell script that completes verbs and flags",
	.help = "For this shell: source <(berth completion bash). Packages install it for all.",
	.min_args = 1,
	.max_args = 1,
	.run = completion,
};
