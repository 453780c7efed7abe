//! The layout of members: on an ellipse in rank order, the first at the top, then clockwise.

use std::f64::consts::TAU;

/// A point of a picture; the origin is the upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// The positions of `members` members on an ellipse.
pub fn circle(members: usize, centre: Point, radius_x: f64, radius_y: f64) -> Vec<Point> {
    let at = |rank: usize| {
        let angle = TAU * rank as f64 / members.max(1) as f64;
        Point { x: centre.x + radius_x * angle.sin(), y: centre.y - radius_y * angle.cos() }
    };
    (0..members).map(at).collect()
}

impl Point {
    /// The point at this fraction of the way to another point.
    pub fn towards(self, other: Point, part: f64) -> Point {
        Point { x: self.x + (other.x - self.x) * part, y: self.y + (other.y - self.y) * part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_stand_like_the_hours_of_a_clock() {
        let places = circle(4, Point { x: 10.0, y: 10.0 }, 4.0, 2.0);
        let rounded: Vec<(i64, i64)> =
            places.iter().map(|p| (p.x.round() as i64, p.y.round() as i64)).collect();
        assert_eq!(rounded, [(10, 8), (14, 10), (10, 12), (6, 10)]);
        assert!(circle(0, places[0], 1.0, 1.0).is_empty());
    }
}
