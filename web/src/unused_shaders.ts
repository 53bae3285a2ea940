/**
 * NiiVue's shaders that the view of the slices does not use.
 *
 * NiiVue compiles about forty shaders when it starts: for volumes, meshes, slices, lines and text. Without a fast GPU,
 * this takes longer than loading a scan. The view of the slices needs those for lines and text only, because it has a
 * slice shader of its own. The others are replaced by an empty shader.
 */

const EMPTY = `#version 300 es
precision lowp float;
out vec4 color;
void main() { color = vec4(0.0); }
`;

/** Return whether a shader samples a volume or draws a mesh. */
export function isUnused(source: string): boolean {
  return /sampler3D|\bin vec4 vClr\b/.test(source);
}

/** Compile unused shaders as empty ones until the returned function is called. */
export function skipUnusedShaders(gl: WebGL2RenderingContext): () => void {
  const original = gl.shaderSource.bind(gl);
  gl.shaderSource = (shader, source) => original(shader, isUnused(source) ? EMPTY : source);
  return () => {
    gl.shaderSource = original;
  };
}
