//! The picture for Graphviz: `potluck status --dot | dot -Tpng > group.png`.

use super::terminal::wrapped;
use super::words::{forecast, kinds, named, plain, rate, rates, share, slowest, time};
use super::{Pace, fastest_bps, pace, words};
use potluck::report::document::{GraphDocument, GraphLink, GraphMember};

/// The graph in the DOT language.
pub fn dot(graph: &GraphDocument) -> String {
    let mut text = "graph potluck {\n".to_owned();
    let head = format!("view {}, {} engine", graph.view, graph.engine);
    let below = [Some(head), slowest(graph), Some(graph.plan.clone()), forecast(graph)];
    let below =
        below.into_iter().flatten().flat_map(|sentence| wrapped(&sentence, COLUMNS)).map(Some);
    text += &format!(
        "  graph [layout=circo, labelloc=b, fontname=\"sans-serif\", label={}];\n",
        label(below)
    );
    text += "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n\
        \x20 edge [fontname=\"sans-serif\", fontsize=10];\n";
    for member in &graph.members {
        text += &node(graph, member);
    }
    for link in &graph.links {
        text += &edge(graph, link);
    }
    text + "}\n"
}

fn node(graph: &GraphDocument, member: &GraphMember) -> String {
    let id: String = member.node.chars().take(8).collect();
    let mine = (member.rank == graph.me).then(|| "this node".to_owned());
    let lines = [
        Some(format!("{} {}", member.rank, named(member))),
        Some(id),
        member.rate_bps.map(rate),
        mine,
    ];
    let colour = if graph.slowest == Some(member.rank) { ", color=\"#c0392b\"" } else { "" };
    format!("  {} [label={}{colour}];\n", member.rank, label(lines))
}

fn edge(graph: &GraphDocument, link: &GraphLink) -> String {
    let pace = pace(link, fastest_bps(graph));
    let colour = match pace {
        Pace::Fast => "#1e8449",
        Pace::Middling => "#b9770e",
        Pace::Slow => "#c0392b",
        Pace::Unknown => "#5d6d7e",
    };
    let style = if link.is_used() { "solid" } else { "dashed" };
    let width = if pace == Pace::Fast { 3 } else { 1 };
    let lines =
        [rates(link), link.rtt_us().map(|us| time(u64::from(us))), kinds(link), share(link)];
    let label = label(lines);
    format!(
        "  {} -- {} [label={label}, color=\"{colour}\", style={style}, penwidth={width}];\n",
        link.a, link.b
    )
}

/// A quoted label of several lines.
fn label(lines: impl IntoIterator<Item = Option<String>>) -> String {
    let lines = lines.into_iter().flatten().map(|line| words::dot(&plain(&line)));
    // Replaces the quotes of each line by one pair around all.
    let inner: Vec<String> = lines.map(|quoted| quoted[1..quoted.len() - 1].to_owned()).collect();
    format!("\"{}\"", inner.join("\\n"))
}

/// The maximum length of a line of text, in characters.
const COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::super::testing::graph;
    use super::*;

    /// Parses DOT strictly, as far as this program writes it: returns the statements, and panics if
    /// the text is malformed.
    fn statements(text: &str) -> Vec<String> {
        let body = text
            .strip_prefix("graph potluck {\n")
            .and_then(|rest| rest.strip_suffix("}\n"))
            .expect("a graph");
        let (mut found, mut statement, mut quoted, mut escaped, mut depth) =
            (Vec::new(), String::new(), false, false, 0);
        for c in body.chars() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                '[' if !quoted => depth += 1,
                ']' if !quoted => depth -= 1,
                ';' if !quoted && depth == 0 => {
                    found.push(std::mem::take(&mut statement).trim().to_owned());
                    continue;
                }
                _ => {}
            }
            statement.push(c);
        }
        assert!(
            !quoted && !escaped && depth == 0 && statement.trim().is_empty(),
            "left over: {statement:?}"
        );
        found
    }

    #[test]
    fn each_member_is_a_node_and_each_link_an_edge() {
        let text = dot(&graph(&["ada", "bob", "cyd"], &[940, 940, 94]));
        let found = statements(&text);
        let heads: Vec<&str> = found.iter().filter_map(|s| s.split(" [").next()).collect();
        assert_eq!(heads, ["graph", "node", "edge", "0", "1", "2", "0 -- 1", "0 -- 2", "1 -- 2"]);
        assert!(found[4].contains("label=\"1 \\\"bob\\\"\\n"), "{}", found[4]);
        assert!(
            found[7].contains("94 Mbit/s")
                && found[7].contains("2.00 buffers")
                && found[8].contains("dashed"),
            "{text}"
        );
    }

    #[test]
    fn no_name_becomes_a_statement() {
        let nasty = graph(&["a\"]; evil -> all [label=\"", "b\\", "c\n}\n&lt;"], &[940, 940, 94]);
        let found = statements(&dot(&nasty));
        assert_eq!(found.len(), 9, "{found:?}");
        assert!(found[4].contains("b\\\\\\\"") && found[5].contains("&amp;lt;"), "{found:?}");
    }
}
