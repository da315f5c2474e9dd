/*
 * Manual pages as roff, written from the table of verbs.
 */
#include "base/text.h"
#include "cli/cli.h"

/* A dash is a minus, a backslash shows itself, and no line begins with a dot or a quote. */
static void put_text(struct buf *out, const char *text)
{
	bool start = true;

	for (; *text; text++) {
		if (start && (*text == '.' || *text == '\''))
			buf_puts(out, "\\&");
		start = *text == '\n';
		if (*text == '-')
			buf_puts(out, "\\-");
		else if (*text == '\\')
			buf_puts(out, "\\e");
		else
			buf_putc(out, *text);
	}
}

static void put_flags(struct buf *out, const struct verb *verb, const struct flag *flags)
{
	for (; flags && flags->name; flags++) {
		if (flag_is_own(verb, flags))
			continue;

		const char *usual = verb && verb->usual ? verb->usual(flags->name) : NULL;

		buf_puts(out, ".TP\n");
		if (flags->letter)
			buf_printf(out, "\\fB\\-%c\\fR, ", flags->letter);
		buf_puts(out, "\\fB\\-\\-");
		put_text(out, flags->name);
		buf_puts(out, "\\fR");
		if (flags->value) {
			buf_puts(out, " \\fI");
			put_text(out, flags->value);
			buf_puts(out, "\\fR");
		}
		buf_putc(out, '\n');
		put_text(out, flags->summary);
		if (usual) {
			buf_puts(out, " (");
			put_text(out, usual);
			buf_puts(out, ")");
		}
		buf_puts(out, flags->many ? "; may repeat.\n" : ".\n");
	}
}

static void put_title(struct buf *out, const char *name)
{
	buf_puts(out, ".TH \"");
	for (; *name; name++)
		buf_putc(out, *name == ' '                   ? '-'
			      : *name >= 'a' && *name <= 'z' ? *name - 32
							     : *name);
	buf_puts(out, "\" 1 \"\" \"berth " BERTH_VERSION "\" \"Berth\"\n");
}

static void put_usage(struct buf *out, const struct verb *verb)
{
	buf_puts(out, "\\fBberth ");
	put_text(out, verb->name);
	buf_puts(out, "\\fR [\\fIflags\\fR] ");
	put_text(out, verb->arguments);
	buf_putc(out, '\n');
}

static void put_verb(struct buf *out, const struct verb *verb)
{
	put_text(out, verb->summary);
	buf_puts(out, ".\n");
	if (verb->help) {
		buf_puts(out, ".PP\n");
		put_text(out, verb->help);
		buf_putc(out, '\n');
	}
}

static void put_page(struct buf *out, const struct verb *verb)
{
	_cleanup_free_ char *title = xasprintf("berth %s", verb->name);

	put_title(out, title);
	buf_puts(out, ".SH NAME\n");
	for (const char *p = title; *p; p++)
		buf_puts(out, *p == ' ' ? "\\-" : (char[]){ *p, 0 });
	buf_puts(out, " \\- ");
	put_text(out, verb->summary);
	buf_puts(out, "\n.SH SYNOPSIS\n");
	put_usage(out, verb);
	buf_puts(out, ".SH DESCRIPTION\n");
	put_verb(out, verb);
	buf_puts(out, ".SH OPTIONS\n");
	put_flags(out, verb, verb->flags);
	put_flags(out, verb, GLOBAL_FLAGS);
	buf_puts(out, ".SH SEE ALSO\n\\fBberth\\fR(1)\n");
}

static void put_overview(struct buf *out)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();

	put_title(out, "berth");
	buf_puts(out,
		 ".SH NAME\nberth \\- leased places to execute for AI agents\n"
		 ".SH SYNOPSIS\n\\fBberth\\fR \\fIverb\\fR [\\fIflags\\fR] [\\fIarguments\\fR]\n"
		 ".SH DESCRIPTION\n"
		 "Every run gets a leased place: a sandbox, or this host. Verbs talk to a "
		 "server;\nif "
		 "none is running, they start one in the background.\n"
		 ".SH OPTIONS OF EVERY VERB\n");
	put_flags(out, NULL, GLOBAL_FLAGS);
	buf_puts(out, ".SH VERBS\n");
	for (const struct verb **at = verbs; *at; at++) {
		buf_puts(out, ".SS ");
		put_usage(out, *at);
		put_verb(out, *at);
		put_flags(out, *at, (*at)->flags);
	}
	buf_puts(out,
		 ".SH EXIT STATUS\n"
		 "The command's own, if the verb runs one; 124: it timed out; 125: Berth itself "
		 "failed;\n126 and 127 as in a shell; 128+n: signal n; 2: wrong command line.\n"
		 ".SH ENVIRONMENT\n"
		 "BERTH_DATA, BERTH_URL, BERTH_COMPANY, BERTH_TOKEN_FILE and BERTH_CA_FILE replace "
		 "their flags;\nBERTH_TOKEN is the token itself. Flags of \\fBberth serve\\fR have "
		 "variables too:\n\\fB\\-\\-log\\-format\\fR is BERTH_LOG_FORMAT.\n");
}

static const struct verb *find(const struct args *args)
{
	_cleanup_free_ const struct verb **verbs = verbs_in_order();
	_cleanup_buf_ struct buf name = { 0 };

	for (size_t i = 0; i < args->positionals; i++)
		buf_printf(&name, "%s%s", i ? " " : "", args->positional[i]);
	for (const struct verb **at = verbs; *at; at++)
		if (streq((*at)->name, buf_str(&name)))
			return *at;
	return NULL;
}

static int man(struct cli *cli, const struct args *args)
{
	_cleanup_buf_ struct buf out = { 0 };
	const struct verb *verb = args->positionals ? find(args) : NULL;
	(void)cli;

	if (args->positionals && !verb) {
		fprintf(stderr, "berth: there is no such verb; `berth --help` lists them\n");
		return EXIT_USAGE;
	}
	if (verb)
		put_page(&out, verb);
	else
		put_overview(&out);
	fputs(buf_str(&out), stdout);
	return 0;
}

VERB(MAN, 690) = {
	.name = "man",
	.arguments = "[VERB]",
	.summary = "print the manual page as roff",
	.help = "berth man run | man -l - shows it. Without a verb: the page of all of them.",
	.max_args = 2,
	.run = man,
};
