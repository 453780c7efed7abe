//! A table of text that fits on the paper: the least important columns go first.

use crate::picture::{Paper, plain, width};
use anstyle::Style;

/// The properties of a column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub side: Side,
    /// Where there is no place, columns with a higher number are left out first; 0 stays.
    pub order: u8,
    /// The width to which it may shrink before others are left out; `None` if it does not shrink.
    pub least: Option<usize>,
}

/// The side to which the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A text and its style.
pub type Cell = (String, Style);

/// Rows with one cell per column.
pub struct Table<'a> {
    columns: &'a [Column],
    rows: Vec<Vec<Cell>>,
}

/// The blanks between two columns.
const GAP: usize = 2;

impl<'a> Table<'a> {
    /// A table without rows.
    pub fn of(columns: &'a [Column]) -> Table<'a> {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row. Characters that are not plain text are replaced.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let row = row.into_iter().map(|(text, style)| (plain(&text), style));
        self.rows.push(row.collect());
    }

    /// The rows below their titles; nothing without a row. Columns without any text are left out.
    pub fn lines(&self, paper: Paper) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let shown = self.fitting(paper.columns);
        let title = |(at, _): &(usize, usize)| (self.columns[*at].title.to_owned(), TITLE);
        let mut lines = vec![self.line(&shown, title, paper)];
        let cell = |row: &Vec<Cell>, at: usize| row.get(at).cloned().unwrap_or_default();
        lines
            .extend(self.rows.iter().map(|row| self.line(&shown, |(at, _)| cell(row, *at), paper)));
        lines
    }

    /// The columns that fit, with their widths.
    fn fitting(&self, columns: usize) -> Vec<(usize, usize)> {
        let mut shown: Vec<(usize, usize)> = (0..self.columns.len())
            .filter_map(|at| Some((at, self.widest(at).filter(|widest| *widest > 0)?)))
            .map(|(at, widest)| (at, widest.max(width(self.columns[at].title))))
            .collect();
        while wide(&shown) > columns {
            let over = wide(&shown) - columns;
            if self.shrink(&mut shown, over) {
                break;
            }
            let least = shown.iter().enumerate().max_by_key(|(_, (at, _))| self.columns[*at].order);
            match least.map(|(place, (at, _))| (place, self.columns[*at].order)) {
                Some((place, 1..)) => {
                    shown.remove(place);
                }
                _ => break,
            }
        }
        shown
    }

    fn widest(&self, at: usize) -> Option<usize> {
        self.rows.iter().filter_map(|row| row.get(at)).map(|(text, _)| width(text)).max()
    }

    /// Takes this many cells from the columns that may shrink, if they have them.
    fn shrink(&self, shown: &mut [(usize, usize)], over: usize) -> bool {
        let spare = |(at, wide): &(usize, usize)| {
            self.columns[*at].least.map_or(0, |least| wide.saturating_sub(least))
        };
        if shown.iter().map(spare).sum::<usize>() < over {
            return false;
        }
        let mut left = over;
        for place in shown.iter_mut().rev() {
            let taken = spare(place).min(left);
            place.1 -= taken;
            left -= taken;
        }
        true
    }

    fn line(
        &self,
        shown: &[(usize, usize)],
        cell: impl Fn(&(usize, usize)) -> Cell,
        paper: Paper,
    ) -> String {
        let (mut line, mut left) = (String::new(), paper.columns);
        for (place, (at, wide)) in shown.iter().enumerate() {
            let gap = if place == 0 { 0 } else { GAP.min(left) };
            left -= gap;
            let wide = (*wide).min(left);
            left -= wide;
            let (text, style) = cell(&(*at, wide));
            let text = shortened(&text, wide, paper);
            let blank = " ".repeat(wide.saturating_sub(width(&text)));
            let text = styled(&text, style, paper);
            line += &" ".repeat(gap);
            line += &match self.columns[*at].side {
                Side::Left => text + &blank,
                Side::Right => blank + &text,
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The style of titles.
const TITLE: Style = Style::new().dimmed();

fn wide(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|(_, wide)| wide).sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

/// The text in this style, where colours may be used.
pub fn styled(text: &str, style: Style, paper: Paper) -> String {
    if paper.colours && style != Style::new() && !text.is_empty() {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

/// The text on at most so many columns; the mark of an omission stands for the rest.
pub fn shortened(text: &str, columns: usize, paper: Paper) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mark = if paper.unicode { "…" } else { "~" };
    let mut short = String::new();
    for letter in text.chars() {
        let longer = format!("{short}{letter}");
        if width(&longer) + width(mark) > columns {
            break;
        }
        short = longer;
    }
    if columns == 0 { short } else { short + mark }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { title: "name", side: Side::Left, order: 0, least: None },
        Column { title: "calls", side: Side::Right, order: 1, least: None },
        Column { title: "extra", side: Side::Left, order: 2, least: None },
        Column { title: "state", side: Side::Left, order: 0, least: Some(6) },
    ];

    fn lines(columns: usize, unicode: bool) -> Vec<String> {
        let mut table = Table::of(&COLUMNS);
        for (name, calls, state) in [("ada", "7", "waits for bob"), ("小\u{1b}", "1200", "in")] {
            let cells = [name, calls, "", state].map(|text| (text.to_owned(), Style::new()));
            table.push(cells);
        }
        table.lines(Paper { columns, colours: false, unicode })
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        assert_eq!(
            lines(80, true),
            ["name  calls  state", "ada       7  waits for bob", "小\u{fffd}    1200  in"]
        );
    }

    #[test]
    fn a_column_shrinks_before_another_is_left_out() {
        assert_eq!(lines(20, true)[1], "ada       7  waits …");
        assert_eq!(lines(20, false)[1], "ada       7  waits ~");
        assert_eq!(lines(12, true)[1], "ada   waits…", "calls are left out");
        for columns in 0..40 {
            let widest = lines(columns, true).iter().map(|line| width(line)).max();
            assert!(widest <= Some(columns), "{columns}");
        }
    }

    #[test]
    fn a_table_without_rows_has_no_title() {
        let paper = Paper { columns: 80, colours: true, unicode: true };
        assert!(Table::of(&COLUMNS).lines(paper).is_empty());
    }
}
