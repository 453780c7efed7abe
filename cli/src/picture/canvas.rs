//! A character canvas for lines and words. Each cell is a Braille character with 2 x 4 dots.

use super::circle::Point;
use anstyle::Style;
use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The cells, row by row.
pub struct Canvas {
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    dots: u8,
    word: Word,
    style: Style,
}

/// The text in a cell, drawn over its dots.
#[derive(Clone, Copy, Default)]
enum Word {
    #[default]
    None,
    Letter(char),
    /// The second half of a wide letter.
    Taken,
}

impl Canvas {
    /// An empty canvas.
    pub fn new(columns: usize, rows: usize) -> Canvas {
        Canvas { columns, rows, cells: vec![Cell::default(); columns * rows] }
    }

    /// Its width and height in dots.
    pub fn dots(&self) -> (f64, f64) {
        ((2 * self.columns) as f64, (4 * self.rows) as f64)
    }

    /// Draws a straight line between two points, in dots; only each `every`-th dot is set.
    pub fn line(&mut self, from: Point, to: Point, every: usize, style: Style) {
        let steps = (to.x - from.x).abs().max((to.y - from.y).abs()).round().max(1.0) as usize;
        for step in (0..=steps).step_by(every) {
            let at = from.towards(to, step as f64 / steps as f64);
            self.dot(at.x.round(), at.y.round(), style);
        }
    }

    fn dot(&mut self, x: f64, y: f64, style: Style) {
        let (across, down) = self.dots();
        if x < 0.0 || y < 0.0 || x >= across || y >= down {
            return;
        }
        let (x, y) = (x as usize, y as usize);
        let cell = &mut self.cells[y / 4 * self.columns + x / 2];
        cell.dots |= DOTS[y % 4][x % 2];
        cell.style = style;
    }

    /// Writes a word from this cell on; text beyond the end of the row is cut off.
    pub fn word(&mut self, column: usize, row: usize, text: &str, style: Style) {
        let mut at = column;
        for letter in text.chars() {
            let width = letter.width().unwrap_or(0);
            if width == 0 || row >= self.rows {
                continue;
            }
            if at + width > self.columns {
                return;
            }
            let cell = row * self.columns + at;
            self.cells[cell] = Cell { dots: 0, word: Word::Letter(letter), style };
            for taken in &mut self.cells[cell + 1..cell + width] {
                *taken = Cell { dots: 0, word: Word::Taken, style };
            }
            at += width;
        }
    }

    /// The rows as text, without trailing blanks and trailing blank rows, with or without styles.
    pub fn text(&self, styled: bool) -> String {
        let mut text = String::new();
        for row in self.cells.chunks(self.columns.max(1)) {
            let is_blank =
                |cell: &Cell| cell.dots == 0 && matches!(cell.word, Word::None | Word::Letter(' '));
            let end = row.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
            for cell in &row[..end] {
                let letter = match cell.word {
                    Word::Letter(letter) => letter,
                    Word::Taken => continue,
                    Word::None if cell.dots == 0 => ' ',
                    Word::None => char::from_u32(BRAILLE + u32::from(cell.dots)).unwrap_or(' '),
                };
                if styled && letter != ' ' {
                    let style = cell.style;
                    // Writing to a string never fails.
                    let _ = write!(text, "{style}{letter}{style:#}");
                } else {
                    text.push(letter);
                }
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }
}

/// The width of a text in cells.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The Braille character without dots.
const BRAILLE: u32 = 0x2800;
/// The bits of the dots, row by row.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f64, y: f64) -> Point {
        Point { x, y }
    }

    #[test]
    fn lines_are_dots_and_words_go_over_them() {
        let mut canvas = Canvas::new(4, 2);
        canvas.line(at(0.0, 0.0), at(7.0, 0.0), 1, Style::new());
        canvas.line(at(0.0, 0.0), at(0.0, 7.0), 2, Style::new());
        assert_eq!(canvas.text(false), "⠍⠉⠉⠉\n⠅\n");
        canvas.word(1, 0, "小ab", Style::new());
        assert_eq!(canvas.text(false), "⠍小a\n⠅\n", "what does not fit is left out");
    }

    #[test]
    fn what_is_outside_is_not_drawn() {
        let mut canvas = Canvas::new(2, 1);
        canvas.line(at(-5.0, -5.0), at(9.0, 9.0), 1, Style::new());
        canvas.word(0, 7, "x", Style::new());
        assert_eq!(canvas.text(false), "⠑⢄\n");
    }
}
