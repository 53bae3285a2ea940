"""Label maps that a person draws or corrects: strokes, drafts and saved labels."""
