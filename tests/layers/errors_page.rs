//! `docs/errors.md` is made from the source: the codes of all errors, their texts and their
//! meaning. `POTLUCK_WRITE=1 make test ARGS=layers` writes it again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMatch, Item, ItemEnum, Lit, Pat, Variant};

const PAGE: &str = "docs/errors.md";

const HEAD: &str = "\
# Errors

<!-- Made from the source by `POTLUCK_WRITE=1 make test ARGS=layers`. Do not edit. -->

Every call of the library that fails returns an `Error`. On every error the caller's buffer is
unchanged. `Error::code()` is a stable code for logs and programs; the commands print it with
`--json`. The texts may change. A part of a text in braces stands for a value.
[The guide](guide.md#errors) tells which errors a program answers by a new Context.
";

/// The enums whose values an error contains: name, file, and heading.
const PARTS: [(&str, &str, &str); 6] = [
    ("Cause", "src/report/error.rs", "Why an operation was aborted"),
    ("Rejection", "src/protocol/rejection.rs", "Why a call is invalid"),
    ("EngineFault", "src/protocol/fault.rs", "Faults of an engine"),
    ("ConfigProblem", "src/report/error.rs", "Faults of a configuration"),
    ("IdentityProblem", "src/identity/problem.rs", "Faults of the identity and of key files"),
    ("PairingProblem", "src/pairing/problem.rs", "Why a pairing code leads to no key"),
];

#[test]
fn the_page_of_errors_is_that_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page(root);
    let path = root.join(PAGE);
    if std::env::var_os("POTLUCK_WRITE").is_some() {
        fs::write(&path, &page).expect("a writable page");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == page, "{PAGE} is not what the source says: POTLUCK_WRITE=1 makes it again");
}

fn page(root: &Path) -> String {
    let mut text = HEAD.to_owned();
    text += "\n## Codes\n\n| code | error | meaning |\n| --- | --- | --- |\n";
    for (code, patterns) in codes_of_errors(&file(root, "src/report/error.rs")) {
        let names: Vec<String> = patterns.iter().map(|names| format!("`{}`", names[0])).collect();
        let meaning = match &patterns[..] {
            [one] => meaning(root, one),
            _ => MANY_MEANT.to_owned(),
        };
        let _ = writeln!(text, "| `{code}` | {} | {meaning} |", names.join(", "));
    }
    for (name, path, heading) in PARTS {
        let _ = write!(text, "\n## {heading}\n\n`{name}`\n\n");
        text += &table(enum_of(&file(root, path), name));
    }
    text += "\n## Exit codes of the commands\n\n| exit code | meaning |\n| --- | --- |\n";
    let exits = file(root, "cli/src/exit.rs");
    let numbers: BTreeMap<String, String> = arms_of_code(&exits)
        .into_iter()
        .filter_map(|(pattern, number)| Some((pattern.into_iter().next()?, number?)))
        .collect();
    for variant in &enum_of(&exits, "Exit").variants {
        let number = numbers.get(&variant.ident.to_string()).map_or("any", String::as_str);
        let _ = writeln!(text, "| {number} | {} |", paragraph(&variant.attrs));
    }
    text += "\n## Codes of the commands alone\n\n| code | exit code |\n| --- | --- |\n";
    for (code, exit) in codes_of_commands(&root.join("cli/src")) {
        let number = numbers.get(&exit).map_or("any", String::as_str);
        let _ = writeln!(text, "| `{code}` | {number} |");
    }
    text
}

/// The meaning of a code that several errors share.
const MANY_MEANT: &str =
    "A member has no memory for its part of the operation. The same call fails again.";

/// The meaning of a variant of `Error`, or of its part if the pattern names one.
fn meaning(root: &Path, pattern: &[String]) -> String {
    let of = |path: &str, name: &str, variant: &String| {
        let file = file(root, path);
        let found = enum_of(&file, name).variants.iter().find(|v| v.ident == variant);
        paragraph(&found.unwrap_or_else(|| panic!("there is no {name}::{variant}")).attrs)
    };
    match pattern {
        [variant] => of("src/report/error.rs", "Error", variant),
        [_, name, variant] => {
            let part = PARTS.iter().find(|(part, ..)| part == name).expect("a part of an error");
            of(part.1, name, variant)
        }
        other => panic!("{other:?} names no error"),
    }
}

/// Name, text and meaning of each variant.
fn table(of: &ItemEnum) -> String {
    let mut text = "| value | text | meaning |\n| --- | --- | --- |\n".to_owned();
    for variant in &of.variants {
        let shown = display(variant).map_or_else(String::new, |text| format!("\"{text}\""));
        let meaning = paragraph(&variant.attrs);
        let _ = writeln!(text, "| `{}` | {} | {meaning} |", variant.ident, cell(&shown));
    }
    text
}

/// Each code of `Error::code`, and the [names](names_in) of the patterns that have it.
fn codes_of_errors(errors: &syn::File) -> Vec<(String, Vec<Vec<String>>)> {
    let mut codes: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for (names, code) in arms_of_code(errors) {
        let code = code.expect("a code is a literal");
        match codes.iter_mut().find(|(known, _)| *known == code) {
            Some((_, patterns)) => patterns.push(names),
            None => codes.push((code, vec![names])),
        }
    }
    codes
}

/// The arms of the match in a method `code`: the names of each pattern, and its literal.
fn arms_of_code(file: &syn::File) -> Vec<(Vec<String>, Option<String>)> {
    struct Arms(Vec<(Vec<String>, Option<String>)>);
    impl Visit<'_> for Arms {
        fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
            if item.sig.ident == "code" {
                visit::visit_impl_item_fn(self, item);
            }
        }
        fn visit_item_fn(&mut self, _: &syn::ItemFn) {}
        fn visit_expr_match(&mut self, expression: &ExprMatch) {
            let arms = expression.arms.iter();
            self.0.extend(arms.map(|arm| (names_in(&arm.pat), text_of(&arm.body))));
        }
    }
    let mut arms = Arms(Vec::new());
    arms.visit_file(file);
    assert!(!arms.0.is_empty(), "a method `code` is a match");
    arms.0
}

/// `Stop::with(Exit::Key, "code", ..)` in the commands: each code, and the name of its exit.
fn codes_of_commands(folder: &Path) -> BTreeMap<String, String> {
    struct Stops(BTreeMap<String, String>);
    impl Visit<'_> for Stops {
        fn visit_expr_call(&mut self, call: &ExprCall) {
            visit::visit_expr_call(self, call);
            let Expr::Path(function) = &*call.func else { return };
            let (Some(exit), Some(code)) = (call.args.get(0), call.args.get(1)) else { return };
            if words(&function.path) != ["Stop", "with"] {
                return;
            }
            let code = text_of(code).expect("a code is a literal");
            let exit = match exit {
                Expr::Path(path) => words(&path.path).pop(),
                Expr::Call(of) => match &*of.func {
                    Expr::Path(path) => words(&path.path).pop(),
                    _ => None,
                },
                _ => None,
            };
            let exit = exit.expect("an exit");
            let known = self.0.entry(code.clone()).or_insert_with(|| exit.clone());
            assert_eq!(*known, exit, "{code} has two exit codes");
        }
        fn visit_item_mod(&mut self, module: &syn::ItemMod) {
            if module.ident != "tests" {
                visit::visit_item_mod(self, module);
            }
        }
    }
    let mut sources = BTreeMap::new();
    crate::read_folder(folder, "", &mut sources);
    let mut stops = Stops(BTreeMap::new());
    sources.iter().for_each(|(name, text)| stops.visit_file(&parsed(text, name)));
    stops.0
}

fn file(root: &Path, path: &str) -> syn::File {
    parsed(&fs::read_to_string(root.join(path)).expect("readable source"), path)
}

fn parsed(text: &str, name: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn enum_of<'a>(file: &'a syn::File, name: &str) -> &'a ItemEnum {
    let found = file.items.iter().find_map(|item| match item {
        Item::Enum(it) if it.ident == name => Some(it),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("there is no enum {name}"))
}

/// The text of a literal.
fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            Lit::Int(number) => Some(number.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The variant that a pattern names, and the enum and the variant of its part if it names one.
fn names_in(pattern: &Pat) -> Vec<String> {
    match pattern {
        Pat::Guard(guarded) => names_in(&guarded.pat),
        Pat::Path(path) => words(&path.path)[1..].to_vec(),
        Pat::Struct(it) => words(&it.path)[1..].to_vec(),
        Pat::TupleStruct(it) => {
            let part = it.elems.iter().flat_map(|part| match part {
                Pat::Path(path) => words(&path.path),
                Pat::Struct(it) => words(&it.path),
                _ => Vec::new(),
            });
            words(&it.path)[1..].iter().cloned().chain(part).collect()
        }
        _ => panic!("an arm names a variant"),
    }
}

fn words(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// The format string of `#[display("..")]`, unless it shows nothing but another value.
fn display(variant: &Variant) -> Option<String> {
    let attribute = variant.attrs.iter().find(|a| a.path().is_ident("display"))?;
    let tokens = &attribute.meta.require_list().ok()?.tokens;
    let first = tokens.clone().into_iter().next()?;
    let text = syn::parse_str::<syn::LitStr>(&first.to_string()).ok()?.value();
    text.contains(' ').then_some(text)
}

/// The text of a doc comment as one paragraph of Markdown without links.
fn paragraph(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter(|a| a.path().is_ident("doc"))
        .filter_map(|attribute| text_of(&attribute.meta.require_name_value().ok()?.value));
    let text: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    cell(&without_links(&text.join(" ")))
}

/// A text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// `[text](target)` and `[text]` become the text.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let (inner, after) = link.split_once(']').expect("a bracket that ends");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        plain += before;
        plain += inner;
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

#[test]
fn links_become_their_texts() {
    assert_eq!(without_links("see [`x`](crate::x), [y] and z"), "see `x`, y and z");
}
