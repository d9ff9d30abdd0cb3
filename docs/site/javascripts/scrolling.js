// Boxes that scroll sideways on a narrow screen can be reached, and scrolled, with the keyboard.
"use strict";

(() => {
  const BOXES = ".md-typeset__scrollwrap, .md-typeset p:has(> img[src$='.svg']), .md-typeset pre > code";

  function mark() {
    for (const box of document.querySelectorAll(BOXES)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  // the theme puts tables into boxes when it starts
  addEventListener("load", () => requestAnimationFrame(mark));
  addEventListener("resize", mark);
})();
